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
and eV/Å³. `roofline_share` is the time that the operations of `compiled` (`mace/operations.py`)
take at the rate of a large product of matrices of the same type, measured in the same run, over its
time; `peak_gflops` is that of multiply-adds in registers. The last line printed is one JSON object,
with a list for each figure: one entry a case.
"""

from argparse import Namespace
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch

from harness.command import count_cores, make_parser, read_arguments
from harness.crystals import make_crystal
from harness.peak import measure_peak
from harness.report import collect_columns, divide, print_report, scale_times, show
from harness.sides import (
    WARM_UP,
    Place,
    Side,
    find_medians,
    find_single_gains,
    open_sides,
    take_turns,
)
from harness.structures import pack_structures
from subjects.mace.networks import CUTOFF, LMAX, draw_network, list_places, read_mace_versions
from subjects.mace.operations import count_compiled_inference

ELEMENTS = ["O", "Hf"]
SIDES = {
    "plain": ("ours", {"compiled": False}),
    "compiled": ("ours", {"compiled": True}),
    "eager": ("peer", {"script": False}),
    "script": ("peer", {"script": True}),
}
"""Whose each side is, and what it is told besides the network."""
SMALL = {"atoms": [12], "channels": 8, "repeats": 2, "threads": [1], "max_l": [0]}


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


def measure(case: Case, places: dict[str, Place], args: Namespace) -> dict[str, Any]:
    """Measure all sides of a case."""
    atoms = make_crystal(case.atoms)
    sizes = {"channels": args.channels, "max_l": case.max_l, "correlation": args.correlation}
    weights, options, module = draw_network([atoms], ELEMENTS, scaled=True, **sizes)
    options |= {"dtype": case.dtype}
    started = {
        name: Place(places[whose].module, options | told, places[whose].python)
        for name, (whose, told) in SIDES.items()
        if whose in places
    }
    arrays = weights | pack_structures([atoms])
    with open_sides(started, "MovedNetwork", arrays, case.threads) as sides:
        figures = measure_deviations(sides) | take_times(sides, args.repeats)
        rate = sides["plain"].ask("matrix_rate", "cpu", 2048, case.dtype)  # forgets the network
    needed = count_compiled_inference(module, len(atoms), options["edges"])
    figures |= scale_times(figures, 1e3 / len(atoms), "ms_per_atom", [*SIDES])
    figures |= {"edges": options["edges"], "matrix_gflops": rate / 1e9}
    figures["peak_gflops"] = measure_peak(getattr(torch, case.dtype), case.threads)
    return asdict(case) | figures | {"roofline_share": needed / rate / figures["compiled_s"]}


def measure_deviations(sides: dict[str, Side]) -> dict[str, Any]:
    """Return how far others are from `compiled`, eV an atom, eV/Å, eV/Å³.

    Raises:
        RuntimeError: They do not compute the same.
    """
    results = {name: side.compute() for name, side in sides.items()}
    compiled = results.pop("compiled")
    deviations = {
        name: {key: float(abs(result[key] - x).max()) for key, x in compiled.items()}
        for name, result in results.items()
    }
    limit = 1e-4 * abs(compiled["forces"]).max()
    if not max(one["forces"] for one in deviations.values()) < limit:
        raise RuntimeError(f"the sides do not compute the same: {deviations}")
    return {"deviation": deviations}


def take_times(sides: dict[str, Side], repeats: int) -> dict[str, float | None]:
    """Return median times of sides that take turns, and their ratios."""
    # TorchScript has derivatives to optimise, too.
    times = take_turns(sides, "infer", repeats, WARM_UP + 1)
    figures: dict[str, float | None] = {}
    for end, of_processors in (("s", False), ("processor_s", True)):
        medians = find_medians(times, of_processors=of_processors)
        figures |= {f"{name}_{end}": medians.get(name) for name in SIDES}
        peers = [medians[name] for name in ("eager", "script") if name in medians]
        figures |= {f"ours_{end}": medians["compiled"], f"peer_{end}": min(peers, default=None)}
    return figures | {
        "ratio": divide(figures["peer_s"], figures["ours_s"]),
        "processor_ratio": divide(figures["peer_processor_s"], figures["ours_processor_s"]),
        "plain_ratio": divide(figures["plain_s"], figures["compiled_s"]),
    }


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=7, full="324 and 768 atoms, too; ten minutes", peers=True)
    parser.add_argument("--atoms", type=int, nargs="+", default=[96])
    parser.add_argument("--max-l", type=int, nargs="+", choices=[0, 1, 2], default=[0, 1])
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, count_cores()}))
    parser.add_argument("--correlation", type=int, choices=[1, 2, 3], default=3)
    parser.add_argument("--channels", type=int, default=128)
    args = read_arguments(parser, SMALL, {"atoms": [96, 324, 768]})
    places, rows = list_places(args), []
    for values in product(args.atoms, args.max_l, args.dtypes, args.threads):
        rows.append(measure(Case(*values), places, args))
        show(rows[-1])
    figures = collect_columns(rows) | {"peer": "mace-torch" if "peer" in places else None}
    figures["single_gain"] = find_single_gains(rows, ["atoms", "max_l", "threads"], "compiled_s")
    figures |= {"channels": args.channels, "correlation": args.correlation, "elements": ELEMENTS}
    figures |= {"lmax": LMAX, "layers": 2, "cutoff": CUTOFF, "device": "cpu"}
    figures["repeats"] = args.repeats
    versions = read_mace_versions(places)
    print_report("mace_infer", figures, threads=None, versions=versions)


if __name__ == "__main__":
    main()
