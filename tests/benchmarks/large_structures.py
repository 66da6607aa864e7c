"""The largest crystal that one process calculates, beside the packages chgnet and mace-torch.

    make peers
    python tests/benchmarks/large_structures.py [--memory 4] [--seconds 6] [--models chgnet mace]
                                                [--dtypes float32 float64] [--small] [--full]

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

import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import ase
import numpy as np

from harness.command import find_peer, make_parser, read_arguments
from harness.crystals import make_crystal
from harness.largest import (
    Attempt,
    Limits,
    Watch,
    compare_largest,
    find_largest,
    name_limit,
    split_attempts,
)
from harness.report import print_report, show
from harness.sides import WARM_UP, Place, Side, compare_sides, open_sides, read_side_versions
from harness.structures import Arrays, pack_structures
from pipeline_core.system.memory import find_free_memory
from subjects.mace.networks import ELEMENTS, draw_network

PEER_NAMES = {"chgnet": "chgnet", "mace": "mace-torch"}
DTYPES = ["float32", "float64"]
PACKAGES = ["torch", "numpy", "ase", "chgnet", "mace-torch", "e3nn", "cuequivariance"]
FIRST = 1_000
"""Atoms of the first size, and from which on times count for the exponent."""
MARGIN = 1.5
"""GB of the free memory that are left to others."""
REPEATS, REPEATED = 3, 10.0
"""Steps of a size after its first, if that takes fewer seconds; one otherwise."""
SMALL = {"memory": 8.0, "seconds": 100.0, "channels": 8, "first": 96, "most": 1}


def draw_subject(model: str, dtype: str, channels: int) -> tuple[Arrays, dict[str, Any]]:
    """Return weights and options of a network on both sides."""
    if model == "chgnet":
        return {}, {"dtype": dtype}
    sizes = {"correlation": 2, "channels": channels}
    weights, options, _ = draw_network([make_crystal(96)], ELEMENTS, **sizes)
    return weights, options | {"dtype": dtype}


def list_places(model: str, options: dict[str, Any], args: Namespace) -> dict[str, Place]:
    """Return ours, and the peer if it is there."""
    places, own = {"ours": Place(f"subjects.{model}.ours", options)}, Path(sys.executable)
    python = find_peer(model, args.peers_python if model == "mace" else own)
    peer = Place(f"subjects.{model}.peer", options, python)
    return places | ({"peer": peer} if python else {})


def pack_crystals(large: ase.Atoms) -> Arrays:
    """Return the small crystal and a large one."""
    return pack_structures([make_crystal(96), large])


def attempt(place: Place, weights: Arrays, n_atoms: int, limits: Limits, threads: int) -> Attempt:
    """Calculate a crystal in a process of its own."""
    crystal = make_crystal(n_atoms)
    with Side(place, threads) as side:
        side.make("Crystals", weights | pack_crystals(crystal), place.options)
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


def measure(model: str, dtype: str, limits: Limits, args: Namespace) -> dict[str, list[Attempt]]:
    """Return the attempts of the sides, which agree."""
    weights, options = draw_subject(model, dtype, args.channels)
    places = list_places(model, options, args)
    with open_sides(places, "Crystals", weights | pack_crystals(make_crystal(12)), 1) as sides:
        print(model, dtype, compare_sides(sides), file=sys.stderr, flush=True)

    def report(name: str, n_atoms: int) -> Attempt:
        result = attempt(places[name], weights, n_atoms, limits, args.threads)
        show({"model": model, "dtype": dtype, "side": name} | result.describe())
        return result

    return {
        name: find_largest(lambda n, name=name: report(name, n), args.first, limits, args.most)
        for name in places
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
        if "peer" in sides:
            ratio, bound = compare_largest(sides["ours"], sides["peer"])
        else:
            ratio, bound = None, "unknown"
        figures["atoms_ratio"][PEER_NAMES[model] + end] = ratio
        figures["bound"][PEER_NAMES[model] + end] = bound
        figures["exponent"][model + end] = fit_exponent(sides["ours"])
        for name in of_largest:
            figures[name][model + end] = {
                side: split_attempts(attempts)[0][-1].describe()[name]
                for side, attempts in sides.items()
            }
    return figures


def main() -> None:
    """Measure all networks and print one JSON object as the last line."""
    parser = make_parser(__doc__, full="all of the free memory, in both types; hours", peers=True)
    parser.add_argument("--memory", type=float, default=4.0, help="GB of a process")
    parser.add_argument("--seconds", type=float, default=6.0, help="most that a step may take")
    parser.add_argument("--models", nargs="+", choices=PEER_NAMES, default=[*PEER_NAMES])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES[:1], help="of MACE")
    parser.set_defaults(channels=128, first=FIRST, most=100)
    free = find_free_memory() / 1e9
    full = {"memory": free - MARGIN, "seconds": 300.0, "dtypes": DTYPES}
    args = read_arguments(parser, SMALL, full)
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
    figures = {**summarize(results), "sides": rows, "memory_gb": args.memory, "device": "cpu"}
    places = {
        PEER_NAMES[model] if name == "peer" else name: place
        for model in args.models
        for name, place in list_places(model, {}, args).items()
    }
    peers = ", ".join(name for name in places if name != "ours")
    figures |= {"seconds": args.seconds, "peer": peers or None}
    versions = read_side_versions(places, PACKAGES)
    print_report("large_structures", figures, threads=args.threads, versions=versions)


if __name__ == "__main__":
    main()
