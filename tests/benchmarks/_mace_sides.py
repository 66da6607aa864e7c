"""Both sides of the benchmarks of MACE, and what they are given.

A new pair of processes is started for each call that is measured.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ase
import ase.io
import numpy as np
import torch
from _data import find_mptrj
from _peak import measure_peak
from _sides import PEERS, Side, alternate, compare_sides, make, measure_memory

HERE = Path(__file__).parent
PEER_PACKAGES = [
    "mace-torch", "e3nn", "cuequivariance", "cuequivariance-ops-torch-cu13", "torch", "numpy"
]  # fmt: skip


@contextmanager
def start_pair(args: argparse.Namespace) -> Iterator[dict[str, Side]]:
    """Start a pair of processes, by name."""
    with (
        Side(Path(sys.executable), "_mace_ours", args.threads) as ours,
        Side(args.peers_python, "_mace_peer", args.threads, openmp={}) as peer,
    ):
        yield {"ours": ours, "peer": peer}


def compare(
    kind: str,
    arrays: Mapping[str, np.ndarray],
    options: Mapping[str, Any],
    flop: Mapping[str, float],
    args: argparse.Namespace,
    device: str = "cpu",
) -> dict[str, dict[str, Any]]:
    """Make the same subject on both sides, check that they agree, and measure their calls in turn.

    Each call has processes of its own: TorchScript, in which e3nn writes its modules, optimises for
    the first calls that it sees.

    Args:
        kind: Name of the subject.
        arrays: What it is made of.
        options: What else describes it.
        flop: The calls to measure, and operations of each.
        args: Of the command line.
        device: Where our side works.

    Returns:
        The figures of each call. `roofline_share` is the time of its operations at
        `matrix_gflops`, the rate of a large product of matrices, over ours; `peak_gflops` is that
        of multiply-adds in registers.

    Raises:
        RuntimeError: The sides do not agree.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "subject.npz"
        np.savez(file, **arrays)
        subject = kind, str(file), options
        with start_pair(args) as sides:
            make(sides, subject)
            deviation = compare_sides(sides, Path(folder))
        print(f"{kind}, largest relative deviation: {deviation}", flush=True)
        result = {}
        for call, operations in flop.items():
            with start_pair(args) as sides:
                make(sides, subject)
                figures = alternate(sides, call, args.repeats) | measure_memory(sides, call)
                rate = sides["ours"].ask("matrix_rate", device)  # forgets the subject
            figures |= {"deviation": deviation, "flop": operations, "matrix_gflops": rate / 1e9}
            if device == "cpu":
                figures["peak_gflops"] = measure_peak(torch.float32, args.threads)
            result[call] = figures | {"roofline_share": operations / rate / figures["ours_s"]}
    return result


def draw_structures(path: Path, n_atoms: int) -> list[ase.Atoms]:
    """Draw structures at random, the same for every call, until they have about so many atoms."""
    frames, chosen, left = ase.io.read(path, ":"), [], n_atoms
    for i in np.random.default_rng(0).permutation(len(frames)):
        if len(frames[i]) <= left:
            chosen.append(frames[i])
            left -= len(frames[i])
    return chosen


def collect_arrays(chosen: list[ase.Atoms]) -> dict[str, np.ndarray]:
    """Return structures and their labels as arrays, one structure after the other."""
    return {
        "n_atoms": np.array([len(atoms) for atoms in chosen]),
        "numbers": np.concatenate([atoms.numbers for atoms in chosen]),
        "positions": np.concatenate([atoms.positions for atoms in chosen]),
        "cells": np.stack([np.array(atoms.cell) for atoms in chosen]),
        "energy": np.array([atoms.get_potential_energy() for atoms in chosen]),
        "forces": np.concatenate([atoms.get_forces() for atoms in chosen]),
    }


def describe_machine(args: argparse.Namespace, device: str = "cpu") -> dict[str, Any]:
    """Return what a report says of the machine."""
    from message_ops import name_hardware

    with start_pair(args) as sides:
        versions = {
            "ours": sides["ours"].ask("versions", ["torch", "numpy"]),
            "peer": sides["peer"].ask("versions", PEER_PACKAGES),
        }
    facts = {"repeats": args.repeats, "threads": args.threads}
    return facts | {"hardware": name_hardware(device), "versions": versions}


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return the command line that both benchmarks have."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--data", type=Path, help="extended XYZ of MPtrj, if not the usual one")
    result.add_argument("--correlations", type=int, nargs="+", choices=[2, 3], default=[2, 3])
    result.add_argument("--channels", type=int, default=128)
    result.add_argument("--repeats", type=int, default=5)
    result.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    result.add_argument(
        "--peers-python",
        type=Path,
        default=Path(os.environ.get("PEERS_PYTHON", PEERS)),
        help="interpreter that has mace-torch; else $PEERS_PYTHON, else that of make peers",
    )
    result.add_argument(
        "--small", action="store_true", help="a trial: few atoms, channels, repeats"
    )
    return result


def parse_command_line(
    result: argparse.ArgumentParser, small: Mapping[str, Any]
) -> argparse.Namespace:
    """Read the command line; `--small` sets what is given here."""
    args = result.parse_args()
    args.data = args.data or find_mptrj()
    if not args.data.exists():
        result.error(f"{args.data}: no such file; give the path of MPtrj structures with --data")
    if not args.peers_python.exists():
        result.error(f"{args.peers_python}: no such file; run `make peers`, or set PEERS_PYTHON")
    if args.small:
        vars(args).update(small)
    return args
