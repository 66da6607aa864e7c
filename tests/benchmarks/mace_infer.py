"""Inference of MACE, plain and compiled, against mace-torch: energy, forces, stress of hafnia.

    make peers
    python tests/benchmarks/mace_infer.py [--full] [--atoms 96 324] [--max-l 0 1] [--threads 1 2]
                                          [--dtypes float32 float64] [--correlation 3] [--small]

Rattled fluorite HfO2, a network of Hf and O: 128 channels of 0e (`max_l` 0) or of 0e and 1o (1),
harmonics up to degree 3, correlation 3, cutoff 4.5 Å, two layers with residuals, random weights,
the same on all sides, and a scale at which the root mean square of forces is 1 eV/Å:

| side       | is                                                                               |
|------------|----------------------------------------------------------------------------------|
| `plain`    | our network, forces and stress by autograd                                       |
| `compiled` | what `infer.compile` makes of it                                                 |
| `eager`    | `ScaleShiftMACE`, called as `MACECalculator` calls it: weights fixed, stress on; |
|            | if cuequivariance is installed, with the smaller set of couplings                |
| `script`   | the same as TorchScript, as its converter for LAMMPS makes it                    |

The neighbour graph is made beforehand on all sides; each call has positions of its own. Sides are
processes with the same number of threads, which take turns; figures are medians. `ratio` is the
wall time of the faster of `eager` and `script` over that of `compiled`, `plain_ratio` that of
`plain` over it; `processor_ratio` is as `ratio`, of the time that processors spent, which other
programs on the machine disturb less. `single_gain` is how many times faster `compiled` is in single
precision than in double. `deviation` is how far the others are from `compiled`, eV an atom, eV/Å
and eV/Å³. `roofline_share` is the time that the operations of `compiled` (`_mace_operations.py`)
take at the rate of a large product of matrices of the same type, measured in the same run, over its
time; `peak_gflops` is that of multiply-adds in registers. The last line printed is one JSON object,
with a list for each figure: one entry a case.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from _mace_operations import count_compiled_inference
from _mace_ours import OURS, build_graphs, make_network
from _machine import name_processor
from _peak import measure_peak
from _sides import OPENMP, PEERS, WARM_UP, Side
from ase import Atoms
from large_structures import make_crystal

from pipeline_core.batch import collate
from pipeline_mace.model import MACE
from pipeline_mace.options import MACEOptions
from pipeline_mace.weights import list_rows

ELEMENTS = ["O", "Hf"]
SIDES = {
    "plain": ("_infer_ours", {"compiled": False}),
    "compiled": ("_infer_ours", {"compiled": True}),
    "eager": ("_infer_peer", {"script": False}),
    "script": ("_infer_peer", {"script": True}),
}
"""Module of each side, and what it is told besides the network."""
PACKAGES = ["torch", "numpy", "mace-torch", "e3nn", "cuequivariance"]
ATOMS, MORE_ATOMS = [96], [96, 324, 768]


@dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        atoms: About so many.
        max_l: Highest degree of the features.
        dtype: Of all numbers.
        threads: Of each side.
    """

    atoms: int
    max_l: int
    dtype: str
    threads: int


def measure(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Measure all sides of a case."""
    arrays, options, needed = make_subject(case, args)
    with tempfile.TemporaryDirectory() as path, ExitStack() as stack:
        folder = Path(path)
        np.savez(folder / "subject.npz", **arrays)
        sides = {}
        for name, (module, told) in SIDES.items():
            ours = module == "_infer_ours"
            python = Path(sys.executable) if ours else args.peers_python
            side = Side(python, module, case.threads, OPENMP if ours else {})
            sides[name] = stack.enter_context(side)
            side.ask("make", "Network", str(folder / "subject.npz"), options | told)
        figures = measure_deviations(sides, folder) | take_times(sides, args.repeats)
        rate = sides["plain"].ask("matrix_rate", "cpu", 2048, case.dtype)  # forgets the network
    figures |= {"edges": options["edges"], "roofline_share": needed / rate / figures["compiled_s"]}
    per_atom = {
        f"{side}_ms_per_atom": 1e3 * figures[f"{side}_s"] / len(arrays["numbers"]) for side in SIDES
    }
    peak = measure_peak(getattr(torch, case.dtype), case.threads)
    return asdict(case) | figures | per_atom | {"matrix_gflops": rate / 1e9, "peak_gflops": peak}


def make_subject(
    case: Case, args: argparse.Namespace
) -> tuple[dict[str, np.ndarray], dict[str, Any], float]:
    """Return weights and structure, options of the network, and operations of an inference."""
    atoms = make_crystal(case.atoms)
    sizes = {"channels": args.channels, "max_l": case.max_l, "correlation": args.correlation}
    arrays, options, module = draw_network(atoms, ELEMENTS, **sizes)
    options |= {"dtype": case.dtype}
    return arrays, options, count_compiled_inference(module, len(atoms), options["edges"])


def draw_network(
    atoms: Atoms, elements: Sequence[str], **sizes: int
) -> tuple[dict[str, np.ndarray], dict[str, Any], MACE]:
    """Draw the weights of a network, with the structure and options as sides take them."""
    structure = {"numbers": atoms.numbers, "positions": atoms.positions}
    structure |= {"n_atoms": np.array([len(atoms)]), "cells": np.array(atoms.cell)[None]}
    model = MACEOptions(cutoff=4.5, lmax=3, **sizes)
    (sample,) = build_graphs(structure, model.cutoff)
    n_edges = len(sample["edge_index"])
    options = {"elements": [*elements], "model": model.model_dump(), "edges": n_edges}
    options |= {"average_neighbours": n_edges / len(atoms)}
    torch.manual_seed(0)
    module = make_network(options)
    with torch.no_grad():
        forces = module(collate([sample], torch.float32))["forces"]
    module.scale.fill_(float(forces.square().mean()) ** -0.5)
    arrays = {row.name: row.join().numpy() for row in list_rows(module)}
    arrays |= {OURS + name: x.numpy() for name, x in module.state_dict().items()}
    return arrays | structure, options, module


def measure_deviations(sides: Mapping[str, Side], folder: Path) -> dict[str, Any]:
    """Return how far others are from `compiled`, eV an atom, eV/Å, eV/Å³.

    Raises:
        RuntimeError: They do not compute the same.
    """
    results = {}
    for name, side in sides.items():
        side.ask("result", str(folder / f"{name}.npz"))
        with np.load(folder / f"{name}.npz") as arrays:
            results[name] = dict(arrays)
    compiled = results.pop("compiled")
    deviations = {
        name: {key: float(abs(result[key] - x).max()) for key, x in compiled.items()}
        for name, result in results.items()
    }
    limit = 1e-4 * abs(compiled["forces"]).max()
    if not max(one["forces"] for one in deviations.values()) < limit:
        raise RuntimeError(f"the sides do not compute the same: {deviations}")
    return {"deviation": deviations}


def take_times(sides: Mapping[str, Side], repeats: int) -> dict[str, float]:
    """Return median times of sides that take turns, and their ratios."""
    for side in sides.values():
        for _ in range(WARM_UP + 1):  # TorchScript has derivatives to optimise, too
            side.ask("seconds", "infer")
    rounds = [
        {name: side.ask("both_seconds", "infer") for name, side in sides.items()}
        for _ in range(repeats)
    ]
    wall = {name: median(one[name][0] for one in rounds) for name in sides}
    spent = {name: median(one[name][1] for one in rounds) for name in sides}
    figures = {f"{name}_s": seconds for name, seconds in wall.items()}
    figures |= {f"{name}_processor_s": seconds for name, seconds in spent.items()}
    figures |= {"ours_s": wall["compiled"], "peer_s": min(wall["eager"], wall["script"])}
    return figures | {
        "ratio": figures["peer_s"] / figures["ours_s"],
        "processor_ratio": min(spent["eager"], spent["script"]) / spent["compiled"],
        "plain_ratio": wall["plain"] / wall["compiled"],
    }


def find_single_gains(rows: list[dict[str, Any]]) -> list[float | None]:
    """Return how many times faster the same case is in single precision, None where only one is."""
    keys = ("atoms", "max_l", "threads")
    seconds = {(*(row[k] for k in keys), row["dtype"]): row["compiled_s"] for row in rows}
    pairs = [
        [seconds.get((*(row[k] for k in keys), dtype)) for dtype in ("float64", "float32")]
        for row in rows
    ]
    return [double / single if double and single else None for double, single in pairs]


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--atoms", type=int, nargs="+", help=f"{ATOMS} if not given")
    parser.add_argument("--full", action="store_true", help=f"{MORE_ATOMS} atoms; ten minutes")
    parser.add_argument("--max-l", type=int, nargs="+", choices=[0, 1, 2], default=[0, 1])
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, cores}))
    parser.add_argument("--correlation", type=int, choices=[1, 2, 3], default=3)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--peers-python", type=Path, default=Path(os.environ.get("PEERS_PYTHON", PEERS))
    )
    parser.add_argument("--small", action="store_true", help="a trial: 12 atoms, 16 channels")
    args = parser.parse_args()
    args.atoms = args.atoms or (MORE_ATOMS if args.full else ATOMS)
    if not args.peers_python.exists():
        parser.error(f"{args.peers_python}: no such file; run `make peers`, or set PEERS_PYTHON")
    if args.small:
        args.atoms, args.channels, args.repeats, args.threads = [12], 16, 2, [1]
    return args


def read_versions(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Return the versions of what each side imports."""
    with (
        Side(Path(sys.executable), "_infer_ours", 1) as ours,
        Side(args.peers_python, "_infer_peer", 1, {}) as peer,
    ):
        return {"ours": ours.ask("versions", PACKAGES), "peer": peer.ask("versions", PACKAGES)}


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    args = read_arguments()
    rows = []
    for values in product(args.atoms, args.max_l, args.dtypes, args.threads):
        rows.append(measure(Case(*values), args))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    report = {"name": "mace_infer", "peer": "mace-torch"}
    report |= {key: [row[key] for row in rows] for key in rows[0]}
    report |= {"single_gain": find_single_gains(rows)}
    given = {"channels": args.channels, "correlation": args.correlation, "elements": ELEMENTS}
    given |= {"lmax": 3, "layers": 2, "cutoff": 4.5, "device": "cpu"}
    report |= given | {"repeats": args.repeats, "hardware": name_processor()}
    print(json.dumps(report | {"versions": read_versions(args)}))


if __name__ == "__main__":
    main()
