"""CHGNet here and in the package chgnet, on the same batches of structures; for `chgnet_*.py`.

Each side is a process of its own, and they take turns; a new pair is started for each batch. Both
start from finished neighbour graphs, and both put them into a batch within the time measured. Times
are medians; memory is the growth of the resident memory of a process during a call, beyond what
stays between calls (on a GPU: of allocated memory). `deviation` is how far results are apart,
relative to the largest. `operators` are calls that reach torch's dispatcher.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ase
import ase.io
import numpy as np
from _data import find_mptrj
from _sides import Side, agreement, alternated, make, memory

SIZES, MORE_SIZES = [8, 16], [8, 16, 32]


def run(name: str, call: str, description: str | None) -> None:
    """Measure a call for all sizes of batches and print one JSON object as the last line."""
    args = read_arguments(description)
    rows = []
    for n in args.batch_sizes or (MORE_SIZES if args.full else SIZES):
        rows.append(measure(call, draw_structures(args.data or find_mptrj(), n), args))
        print(json.dumps(rows[-1]), flush=True)
    report = {"name": name, "peer": "chgnet"} | {key: [row[key] for row in rows] for key in rows[0]}
    print(json.dumps(report | {"threads": args.threads} | describe_machine(args)))


def read_arguments(description: str | None) -> argparse.Namespace:
    """Read the command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, help="extended XYZ of MPtrj")
    parser.add_argument("--batch-sizes", type=int, nargs="+", help=f"{SIZES} if not given")
    parser.add_argument("--full", action="store_true", help=f"{MORE_SIZES}; 16 GB of memory")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def draw_structures(path: Path, n: int) -> list[ase.Atoms]:
    """Draw n structures at random, the same for every call."""
    frames = ase.io.read(path, ":")
    return [frames[i] for i in np.random.default_rng(0).permutation(len(frames))[:n]]


def measure(call: str, structures: Sequence[ase.Atoms], args: argparse.Namespace) -> dict[str, Any]:
    """Measure a call of both sides for one batch."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Side(Path(sys.executable), "_chgnet_ours", args.threads) as ours,
        Side(Path(sys.executable), "_chgnet_peer", args.threads) as peer,
    ):
        sides, file = {"ours": ours, "peer": peer}, Path(folder) / "subject.npz"
        np.savez(file, **list_arrays(structures))
        make(sides, ("Network", str(file), {"device": args.device}))
        deviation = max(agreement(sides, Path(folder)).values())
        figures = alternated(sides, call, args.repeats) | memory(sides, call)
        operators = {
            f"{name}_operators": side.ask("operators", call) for name, side in sides.items()
        }
        rate = ours.ask("matrix_rate", args.device)  # forgets the network
    # Each derivative triples the work.
    needed = (6 if call == "step" else 2) * count_operations(structures)
    return {
        "batch_size": len(structures),
        "atoms": sum(map(len, structures)),
        **figures,
        **operators,
        "deviation": deviation,
        "roofline_share": needed / rate / figures["ours_s"],
    }


def list_arrays(structures: Sequence[ase.Atoms]) -> dict[str, np.ndarray]:
    """Return structures and their labels as arrays, one structure after the other."""
    return {
        "n_atoms": np.array([len(atoms) for atoms in structures]),
        "numbers": np.concatenate([atoms.numbers for atoms in structures]),
        "positions": np.concatenate([atoms.positions for atoms in structures]),
        "cells": np.stack([np.array(atoms.cell) for atoms in structures]),
        "energy": np.array([atoms.get_potential_energy() for atoms in structures]),
        "forces": np.concatenate([atoms.get_forces() for atoms in structures]),
        "stress": np.stack([atoms.get_stress(voigt=False) for atoms in structures]),
    }


def count_operations(structures: Sequence[ase.Atoms]) -> float:
    """Operations of the matrix products of one forward pass over edges, angles and bonds."""
    from _chgnet_ours import build_samples

    samples = build_samples(structures)
    n_edges = sum(len(sample["edge_index"]) for sample in samples)
    n_angles = sum(len(sample["angle_edges"]) for sample in samples)
    hidden, first = 2 * 2 * 64 * 64, 2 * 64 * 128
    atom_convolutions = 4 * n_edges * (hidden + first / 2)  # an edge is half a bond
    return atom_convolutions + n_angles * (3 * hidden + 5 * first)


def describe_machine(args: argparse.Namespace) -> dict[str, Any]:
    """Return what a report says of the machine."""
    from message_ops import hardware

    with Side(Path(sys.executable), "_chgnet_ours", args.threads) as ours:
        versions = ours.ask("versions", ["chgnet", "torch", "numpy"])
    return {"hardware": hardware(args.device), "versions": versions}
