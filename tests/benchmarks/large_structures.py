"""The largest crystal that one process calculates, beside the packages chgnet and mace-torch.

    make peers
    python tests/benchmarks/large_structures.py [--memory 20] [--seconds 300] [--models chgnet mace]
                                                [--dtypes float32 float64] [--small]

Energy, forces and stress of rattled hafnia, neighbours included, of CHGNet with its published
weights and of MACE with the network of arXiv:2504.10700 (128 channels of 0e and 1o, harmonics up to
degree 3, correlation 2, cutoff 4.5 Å, two layers, 89 elements) and the same random weights on both
sides. Each side calculates as its users do: ours by its ASE calculator, which also gives magnetic
moments of CHGNet; chgnet by `predict_structure` with the task "efs", in float32, the only type that
it has; mace-torch by `MACECalculator` with its own settings and, if cuequivariance is installed,
the smaller set of couplings that it then takes (its fast kernels need a GPU). Both first agree on
a crystal of 96 atoms.

Every size is a process of its own, which first calculates the small crystal twice and the large one
once, as dynamics do before the steps that take its time, and ends when its resident memory passes
the limit or a step takes too long. Sizes grow until one fits and a tenth
more does not. `atoms_ratio` is how many times larger our largest is. Where time ended a side,
`bound` says which way the ratio is meant, and there is none where it ended both. `exponent` is the
slope of log time over log atoms of ours, from 1,000 atoms on; `atoms`, `ms_per_atom` and
`kb_per_atom` are of the largest size: time, and memory beyond what the process held before. The
last line printed is one JSON object.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import ase
import numpy as np
import torch
from _largest import (
    Attempt,
    Limits,
    Watch,
    compare_largest,
    find_largest,
    name_limit,
    split_attempts,
)
from _mace_ours import OURS, make_network
from _machine import name_processor
from _sides import OPENMP, PEERS, WARM_UP, Side, compare_sides
from ase.build import bulk
from mace_step import make_network_options

from pipeline_core.graphs import build_neighbour_graph
from pipeline_core.memory import find_free_memory
from pipeline_mace.weights import list_rows

Subject = tuple[dict[str, np.ndarray], dict[str, Any]]
"""Weights, and options of a network, as both sides are given them."""
PEER_NAMES = {"chgnet": "chgnet", "mace": "mace-torch"}
KINDS = {"chgnet": "CHGNet", "mace": "MACE"}
DTYPES = ["float32", "float64"]
PACKAGES = ("torch", "numpy", "ase", "chgnet", "mace-torch", "e3nn", "cuequivariance")
FIRST = 1_000
"""Atoms of the first size, and from which on times count for the exponent."""
MARGIN = 1.5
"""GB of the free memory that are left to others."""
REPEATS, REPEATED = 3, 10.0
"""Steps of a size after its first, if that takes fewer seconds; one otherwise."""


@dataclass(frozen=True)
class Case:
    """A network on one side.

    Attributes:
        model: Its name.
        dtype: Type of its numbers.
        side: "ours" or "peer".
    """

    model: str
    dtype: str
    side: str

    def start(self, args: argparse.Namespace) -> Side:
        """Start a process."""
        if self.side == "ours":
            return Side(Path(sys.executable), "_large_ours", args.threads, OPENMP)
        python = args.peers_python if self.model == "mace" else Path(sys.executable)
        return Side(python, f"_large_{self.model}_peer", args.threads, openmp={})


def make_crystal(n_atoms: int) -> ase.Atoms:
    """Return rattled hafnia of about so many atoms, as compact as one or two percent allow."""
    cell = bulk("HfO2", "fluorite", a=5.1, cubic=True)
    n_cells = max(1, round(n_atoms / len(cell)))
    shapes = [
        (a, b, c)
        for a in range(1, round(n_cells ** (1 / 3)) + 1)
        for b in range(a, round((n_cells / a) ** 0.5) + 1)
        if abs(a * b * (c := max(1, round(n_cells / (a * b)))) - n_cells) <= 0.015 * n_cells
    ]
    atoms = cell.repeat(min(shapes, key=lambda shape: max(shape) / min(shape)))
    atoms.rattle(0.05, seed=0)
    return atoms


def draw_subject(model: str, dtype: str) -> Subject:
    """Return weights and options of a network on both sides."""
    if model == "chgnet":
        return {}, {"dtype": dtype}
    options = make_network_options(correlation=2, channels=128) | {"dtype": dtype}
    small = make_crystal(96)
    edges = build_neighbour_graph(
        small.positions, np.array(small.cell), small.pbc, options["model"]["cutoff"]
    )[0]
    options["average_neighbours"] = len(edges) / len(small)
    torch.manual_seed(0)
    module = make_network(options)
    weights = {row.name: row.join().numpy() for row in list_rows(module)}
    return weights | {OURS + name: x.numpy() for name, x in module.state_dict().items()}, options


def make(side: Side, case: Case, subject: Subject, large: ase.Atoms) -> None:
    """Make a network and both its crystals."""
    weights, options = subject
    crystals = [make_crystal(96), large]
    arrays = {
        "n_atoms": np.array([len(atoms) for atoms in crystals]),
        "numbers": np.concatenate([atoms.numbers for atoms in crystals]),
        "positions": np.concatenate([atoms.positions for atoms in crystals]),
        "cells": np.stack([np.array(atoms.cell) for atoms in crystals]),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "subject.npz"
        np.savez(file, **weights, **arrays)
        side.ask("make", KINDS[case.model], str(file), options)


def attempt(
    case: Case, subject: Subject, n_atoms: int, limits: Limits, args: argparse.Namespace
) -> Attempt:
    """Calculate a crystal in a process of its own."""
    crystal = make_crystal(n_atoms)
    with case.start(args) as side:
        make(side, case, subject, crystal)
        for _ in range(WARM_UP):
            side.ask("seconds", "warm")
        before, times = side.ask("resident_bytes", "VmRSS"), []
        try:
            while len(times) < 2 or (len(times) <= REPEATS and times[0] < REPEATED):
                with Watch(side, limits) as watch:
                    times.append(side.ask("seconds", "step"))
            peak = side.ask("resident_bytes", "VmHWM")
        except RuntimeError:
            if watch.stopped_by is None:
                raise
            return Attempt(len(crystal), watch.stopped_by)
    if peak > limits.memory:
        return Attempt(len(crystal), "memory")
    return Attempt(len(crystal), None, median(times[1:]), peak, peak - before)


def measure(
    model: str, dtype: str, limits: Limits, args: argparse.Namespace
) -> dict[str, list[Attempt]]:
    """Return the attempts of both sides, which agree."""
    subject = draw_subject(model, dtype)
    cases = {name: Case(model, dtype, name) for name in ("ours", "peer")}
    with cases["ours"].start(args) as ours, cases["peer"].start(args) as peer:
        sides = {"ours": ours, "peer": peer}
        for name, side in sides.items():
            make(side, cases[name], subject, make_crystal(12))
        with tempfile.TemporaryDirectory() as folder:
            print(model, dtype, compare_sides(sides, Path(folder)), file=sys.stderr, flush=True)

    def report(case: Case, n_atoms: int) -> Attempt:
        result = attempt(case, subject, n_atoms, limits, args)
        print(json.dumps(asdict(case) | result.describe()), file=sys.stderr, flush=True)
        return result

    return {
        name: find_largest(lambda n, case=case: report(case, n), FIRST, limits)
        for name, case in cases.items()
    }


def fit_exponent(attempts: Iterable[Attempt]) -> float | None:
    """Return the slope of log time over log atoms, None of fewer than two sizes."""
    fitting = [one for one in attempts if one.stopped_by is None and one.atoms >= 0.9 * FIRST]
    if len(fitting) < 2:
        return None
    logarithms = np.log([[one.atoms, one.seconds] for one in fitting]).T
    return float(np.polyfit(*logarithms, 1)[0])


def summarize(results: dict[tuple[str, str], dict[str, list[Attempt]]]) -> dict[str, Any]:
    """Return the figures of all networks, by peer or by model."""
    of_largest = ("atoms", "ms_per_atom", "kb_per_atom")
    figures: dict[str, dict[str, Any]] = {
        name: {} for name in ("atoms_ratio", "bound", "exponent", *of_largest)
    }
    for (model, dtype), sides in results.items():
        end = "" if dtype == "float32" else f" {dtype}"
        ratio, bound = compare_largest(sides["ours"], sides["peer"])
        figures["atoms_ratio"][PEER_NAMES[model] + end] = ratio
        figures["bound"][PEER_NAMES[model] + end] = bound
        figures["exponent"][model + end] = fit_exponent(sides["ours"])
        for name in of_largest:
            figures[name][model + end] = {
                side: split_attempts(attempts)[0][-1].describe()[name]
                for side, attempts in sides.items()
            }
    return figures


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    free = (find_free_memory() or 0) / 1e9
    parser.add_argument(
        "--memory", type=float, default=free - MARGIN, help="GB of a process; nearly all if none"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="most that a step may take")
    parser.add_argument("--models", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument(
        "--dtypes", nargs="+", choices=DTYPES, default=DTYPES, help="of MACE; all if none"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--peers-python", type=Path, default=Path(os.environ.get("PEERS_PYTHON", PEERS))
    )
    parser.add_argument(
        "--small", action="store_true", help="2 GB, 60 s, single precision: a few minutes"
    )
    args = parser.parse_args()
    if "mace" in args.models and not args.peers_python.exists():
        parser.error(f"{args.peers_python}: no such file; run `make peers`, or set PEERS_PYTHON")
    if args.small:
        args.memory, args.seconds, args.dtypes = 2.0, 60.0, DTYPES[:1]
    return args


def main() -> None:
    args = read_arguments()
    limits = Limits(1e9 * args.memory, args.seconds)
    results = {
        (model, dtype): measure(model, dtype, limits, args)
        for model in args.models
        for dtype in (args.dtypes if model == "mace" else ["float32"])
    }
    rows = [
        {"model": model, "dtype": dtype, "side": side, "stopped_by": name_limit(attempts)}
        | {"attempts": [one.describe() for one in attempts]}
        for (model, dtype), sides in results.items()
        for side, attempts in sides.items()
    ]
    report = {"name": "large_structures", **summarize(results), "sides": rows}
    report |= {"memory_gb": args.memory, "seconds": args.seconds, "threads": args.threads}
    report |= {"device": "cpu", "hardware": name_processor(), "versions": read_versions(args)}
    print(json.dumps(report))


def read_versions(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Return the versions of what each side imports."""
    cases = {"ours": Case("mace", "float32", "ours")}
    cases |= {PEER_NAMES[model]: Case(model, "float32", "peer") for model in args.models}
    versions = {}
    for name, case in cases.items():
        with case.start(args) as side:
            versions[name] = side.ask("versions", PACKAGES)
    return versions


if __name__ == "__main__":
    main()
