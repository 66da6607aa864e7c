"""CHGNet here and in the package chgnet, on the same batches of structures; for `chgnet_*.py`.

| side    | network                                                                               |
|---------|---------------------------------------------------------------------------------------|
| `ours`  | that of the plugin with the published weights; forces and stress are derivatives      |
| `heads` | that of the plugin with `heads: pair` and `updates: parallel`, default sizes, random  |
|         | weights, since none are published; forces and stress are read from features           |
| `peer`  | that of the package with the published weights; forces and stress are derivatives     |

All get the same structures of MPtrj, drawn at random with a fixed seed, in single precision, start
from finished neighbour graphs, put them into a batch within the time measured, and may use the same
number of threads. Each is a process of its own; a new one is started for each batch. Processes run
as those of their users: training here keeps memory that it frees, that of the package does not.

Times are medians of calls in turn, one process at a time. Memory is the growth of the resident
memory of a process during a call, beyond what stays between calls (on a GPU: of allocated memory),
while no other side is alive. A ratio is the peer's over ours, or over that with heads.
`deviation` is how far results of `ours` and `peer` are apart, relative to the largest. `operators`
are calls that reach torch's dispatcher, or those of the plugin that go past it; on a GPU `launches`
are the kernels that a call starts there. Figure 8 of FastCHGNet shows time, launches and memory for
`--device cuda --batch-sizes 16 32 64`.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import ase
import ase.io
import numpy as np
from _data import find_mptrj
from _sides import WARM_UP, Side, compare_sides, take_turns

from pipeline_core.cli import OPENMP

MODULES = {"ours": "_chgnet_ours", "heads": "_chgnet_ours", "peer": "_chgnet_peer"}
SMALL_SIZES, SIZES, MORE_SIZES = [2], [8, 16], [8, 16, 32]
FEW_REPEATS = 2


def run(name: str, call: str, description: str | None) -> None:
    """Measure a call for all sizes of batches and print one JSON object as the last line."""
    args = read_arguments(description)
    rows = []
    for n in args.batch_sizes:
        rows.append(measure(call, draw_structures(args.data or find_mptrj(), n), args))
        print(json.dumps(rows[-1]), flush=True)
    report = {"name": name, "peer": "chgnet"} | {key: [row[key] for row in rows] for key in rows[0]}
    print(json.dumps(report | {"threads": args.threads} | describe_machine(args)))


def read_arguments(description: str | None) -> argparse.Namespace:
    """Read the command line of a benchmark."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="extended XYZ of MPtrj")
    parser.add_argument("--batch-sizes", type=int, nargs="+", help=f"{SIZES} if not given")
    parser.add_argument("--small", action="store_true", help=f"a trial: {SMALL_SIZES}, few repeats")
    parser.add_argument("--full", action="store_true", help=f"{MORE_SIZES}; 16 GB of memory")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    args.repeats = FEW_REPEATS if args.small else args.repeats
    args.batch_sizes = args.batch_sizes or (
        SMALL_SIZES if args.small else MORE_SIZES if args.full else SIZES
    )
    return args


def draw_structures(path: Path, n: int) -> list[ase.Atoms]:
    """Draw n structures at random, the same for every call."""
    frames = ase.io.read(path, ":")
    return [frames[i] for i in np.random.default_rng(0).permutation(len(frames))[:n]]


def measure(call: str, structures: Sequence[ase.Atoms], args: argparse.Namespace) -> dict[str, Any]:
    """Measure a call of all sides for one batch."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "subject.npz"
        np.savez(file, **list_arrays(structures))
        figures, rate = measure_times(call, file, args)
        figures |= measure_memory(call, file, args)
    # Each derivative triples the work.
    needed = (6 if call == "step" else 2) * count_operations(structures)
    return {
        "batch_size": len(structures),
        "atoms": sum(map(len, structures)),
        **figures,
        "roofline_share": needed / rate / figures["ours_s"],
    }


def start_side(name: str, call: str, file: Path, args: argparse.Namespace) -> Side:
    """Start a process and make its network."""
    openmp = {} if name == "peer" else OPENMP
    side = Side(Path(sys.executable), MODULES[name], args.threads, openmp)
    options = {"device": args.device, "heads": name == "heads", "training": call == "step"}
    side.ask("make", "Network", str(file), options)
    return side


def measure_times(call: str, file: Path, args: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """Return times, counts of operators and the deviation; and the rate of matrix products."""
    with ExitStack() as stack:
        sides = {name: stack.enter_context(start_side(name, call, file, args)) for name in MODULES}
        exact = {name: sides[name] for name in ("ours", "peer")}
        deviation = max(compare_sides(exact, file.parent).values())
        times = take_turns(sides, call, args.repeats)
        seconds = {name: median(column) for name, column in times.items()}
        figures = {f"{name}_s": seconds[name] for name in sides}
        figures |= {f"{name}_best_s": min(column) for name, column in times.items()}
        figures |= compare(seconds, "ratio")
        figures |= {
            f"{name}_operators": side.ask("operators", call) for name, side in sides.items()
        }
        if args.device == "cuda":
            figures |= {
                f"{name}_launches": side.ask("launches", call) for name, side in sides.items()
            }
        rate = sides["ours"].ask("matrix_rate", args.device)  # forgets the network
    return figures | {"deviation": deviation}, rate


def measure_memory(call: str, file: Path, args: argparse.Namespace) -> dict[str, float | None]:
    """Return the memory of a call of each side, which is alone."""
    peak = {}
    for name in MODULES:
        with start_side(name, call, file, args) as side:
            for _ in range(WARM_UP):
                side.ask("seconds", call)
            peak[name] = side.ask("peak_bytes", call)
    return {f"{name}_gb": size / 1e9 for name, size in peak.items()} | compare(peak, "memory_ratio")


def compare(figures: Mapping[str, float], name: str) -> dict[str, float | None]:
    """Return the peer's figure over ours and over that with heads, none where those are zero."""
    peer, ours, heads = (figures[side] for side in ("peer", "ours", "heads"))
    return {
        name: peer / ours if ours > 0 else None,
        f"heads_{name}": peer / heads if heads > 0 else None,
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
    from message_ops import name_hardware

    with Side(Path(sys.executable), "_chgnet_ours", args.threads) as ours:
        versions = ours.ask("versions", ["chgnet", "torch", "numpy"])
    return {"hardware": name_hardware(args.device), "versions": versions}
