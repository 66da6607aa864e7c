"""Both sides of the benchmarks of MACE: processes that take turns, and what they are given.

The peer runs in an environment of its own (`make peers`), so each side is a process that is driven
over a pipe. A new pair is started for each call that is measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Self

import ase
import ase.io
import numpy as np

HERE = Path(__file__).parent
DATA = HERE.parents[2] / "shared/data/mattersim_benchmarks/mptrj-random-1k.xyz"
PEERS = HERE.parents[1] / ".venv-peers/bin/python"
TOLERANCE = 1e-3  # of the largest magnitude, in single precision
WARM_UP = 2  # TorchScript records the first call and optimises in the second


class Side:
    """A process of `_mace_worker.py`.

    Args:
        python: Its interpreter.
        name: ours or peer.
        threads: That it may use.
    """

    def __init__(self, python: Path, name: str, threads: int) -> None:
        # e3nn 0.4.4 loads a file of its own that torch refuses by default.
        environment = {"OMP_NUM_THREADS": str(threads), "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
        command = [str(python), str(HERE / "_mace_worker.py"), name, str(threads)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker and wait for its result.

        Raises:
            RuntimeError: The process has ended; its traceback is on stderr.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the empty answer says the same
        answer = self.process.stdout.readline()
        if not answer:
            command = " ".join(self.process.args)
            raise RuntimeError(f"{command}: ended with exit code {self.process.wait()}")
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # closes the pipe, at whose end the worker returns


@contextmanager
def both(args: argparse.Namespace) -> Iterator[dict[str, Side]]:
    """Start a pair of processes, by name."""
    with (
        Side(Path(sys.executable), "ours", args.threads) as ours,
        Side(args.peers_python, "peer", args.threads) as peer,
    ):
        yield {"ours": ours, "peer": peer}


def compare(
    kind: str,
    arrays: Mapping[str, np.ndarray],
    options: Mapping[str, Any],
    calls: Iterable[str],
    args: argparse.Namespace,
) -> dict[str, dict[str, Any]]:
    """Make the same subject on both sides, check that they agree, and measure their calls in turn.

    Each call has processes of its own: TorchScript, in which e3nn writes its modules, optimises for
    the first calls that it sees.

    Returns:
        The figures of each call.

    Raises:
        RuntimeError: The sides do not agree.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "subject.npz"
        np.savez(file, **arrays)
        subject = kind, str(file), options
        with both(args) as sides:
            make(sides, subject)
            deviation = agreement(sides, Path(folder))
        print(f"{kind}, largest relative deviation: {deviation}", flush=True)
        found = {}
        for call in calls:
            with both(args) as sides:
                make(sides, subject)
                figures = alternated(sides, call, args.repeats) | memory(sides, call)
            found[call] = figures | {"deviation": deviation}
    return found


def make(sides: Mapping[str, Side], subject: tuple[Any, ...]) -> None:
    """Make the subject on both sides."""
    for side in sides.values():
        side.ask("make", *subject)


def agreement(sides: Mapping[str, Side], folder: Path) -> dict[str, float]:
    """Return how far apart what the sides compute is."""
    found = {}
    for name, side in sides.items():
        file = folder / f"{name}.npz"
        side.ask("found", str(file))
        with np.load(file) as arrays:
            found[name] = dict(arrays)
    deviations = {
        key: float(abs(found["ours"][key] - value).max() / abs(value).max())
        for key, value in found["peer"].items()
    }
    if not max(deviations.values()) < TOLERANCE:
        raise RuntimeError(f"the two sides do not compute the same: {deviations}")
    return deviations


def alternated(sides: Mapping[str, Side], call: str, repeats: int) -> dict[str, float]:
    """Return median and smallest time of each side, and the ratio of the medians."""
    for side in sides.values():
        for _ in range(WARM_UP):
            side.ask("seconds", call)
    rounds = [[side.ask("seconds", call) for side in sides.values()] for _ in range(repeats)]
    times = dict(zip(sides, zip(*rounds, strict=True), strict=True))
    ours, peer = median(times["ours"]), median(times["peer"])
    best = {f"{name}_best_s": min(column) for name, column in times.items()}
    return {"ours_s": ours, "peer_s": peer, "ratio": peer / ours} | best


def memory(sides: Mapping[str, Side], call: str) -> dict[str, float | None]:
    """Return the memory of a call on both sides and its ratio, none where ours takes nothing."""
    peak = {name: side.ask("peak_bytes", call) for name, side in sides.items()}
    ratio = peak["peer"] / peak["ours"] if peak["ours"] > 0 else None
    return {f"{name}_gb": size / 1e9 for name, size in peak.items()} | {"memory_ratio": ratio}


def structures(path: Path, n_atoms: int) -> list[ase.Atoms]:
    """Draw structures at random, the same for every call, until they have about so many atoms."""
    frames, chosen, left = ase.io.read(path, ":"), [], n_atoms
    for i in np.random.default_rng(0).permutation(len(frames)):
        if len(frames[i]) <= left:
            chosen.append(frames[i])
            left -= len(frames[i])
    return chosen


def arrays_of(chosen: list[ase.Atoms]) -> dict[str, np.ndarray]:
    """Return structures and their labels as arrays, one structure after the other."""
    return {
        "n_atoms": np.array([len(atoms) for atoms in chosen]),
        "numbers": np.concatenate([atoms.numbers for atoms in chosen]),
        "positions": np.concatenate([atoms.positions for atoms in chosen]),
        "cells": np.stack([np.array(atoms.cell) for atoms in chosen]),
        "energy": np.array([atoms.get_potential_energy() for atoms in chosen]),
        "forces": np.concatenate([atoms.get_forces() for atoms in chosen]),
    }


def machine(args: argparse.Namespace) -> tuple[float, dict[str, Any]]:
    """Return the rate of matrix products, and what a report says of the machine."""
    from message_ops import hardware

    with both(args) as sides:
        rate = sides["ours"].ask("matrix_rate")
        versions = {
            "ours": sides["ours"].ask("versions", ["torch", "numpy"]),
            "peer": sides["peer"].ask(
                "versions", ["mace-torch", "e3nn", "cuequivariance", "torch", "numpy"]
            ),
        }
    facts = {"threads": args.threads, "hardware": hardware("cpu"), "versions": versions}
    return rate, {"repeats": args.repeats, "matrix_gflops": rate / 1e9, **facts}


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the command line that both benchmarks have."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--data", type=Path, default=DATA, help="extended XYZ of MPtrj")
    found.add_argument("--correlations", type=int, nargs="+", choices=[2, 3], default=[2, 3])
    found.add_argument("--channels", type=int, default=128)
    found.add_argument("--repeats", type=int, default=5)
    found.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    found.add_argument(
        "--peers-python",
        type=Path,
        default=Path(os.environ.get("PEERS_PYTHON", PEERS)),
        help="interpreter that has mace-torch; else $PEERS_PYTHON, else that of make peers",
    )
    found.add_argument("--small", action="store_true", help="a trial: few atoms, channels, repeats")
    return found


def parsed(found: argparse.ArgumentParser, small: Mapping[str, Any]) -> argparse.Namespace:
    """Read the command line; `--small` sets what is given here."""
    args = found.parse_args()
    if not args.data.exists():
        found.error(f"{args.data}: no such file; give the path of MPtrj structures with --data")
    if not args.peers_python.exists():
        found.error(f"{args.peers_python}: no such file; run `make peers`, or set PEERS_PYTHON")
    if args.small:
        vars(args).update(small)
    return args
