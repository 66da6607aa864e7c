"""Molecular dynamics with CHGNet through ASE against the calculator of the package chgnet.

    python tests/benchmarks/chgnet_md.py [--small] [--full] [--threads 2]

The last line printed is one JSON object. The sides are `ours`, `compiled` (`infer.compile`) and
`peer` with the published weights, `heads` with random ones, which makes no difference to time. Each
is an ASE calculator in a process of its own, with the same cells, velocities and number of threads:
MgO, 8 and 32 atoms, 300 K, velocity Verlet, 1 fs. They take turns. Times are medians of a
calculation, over blocks of them from the same start, neighbour lists included. `drift` is the slope
of the total energy, meV/atom/ps, without a thermostat: over 20 ps in steps of 2 fs with `--full`,
else over 20 fs, which shows that both sides integrate the same and no more. `operators` are calls
of one calculation that reach torch's dispatcher, or those of the plugin that go past it.
"""

from argparse import Namespace
from typing import Any

from harness.blocks import STEPS, measure_dynamics
from harness.command import find_peer, make_parser, read_arguments
from harness.dynamics import make_start
from harness.report import collect_columns, divide, print_report, show
from harness.sides import Place, read_side_versions

NAMES = ("ours", "compiled", "heads", "peer")
REPEATS = {8: (1, 1, 1), 32: (2, 2, 1)}
"""Of the cell of 8 atoms, by numbers of atoms."""


def main() -> None:
    """Measure all sizes and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=7, full="drift over 20 ps; an hour")
    parser.add_argument("--atoms", type=int, nargs="+", choices=REPEATS, default=[*REPEATS])
    parser.set_defaults(steps=STEPS, followed=(20, 1.0))
    small = {"atoms": [8], "repeats": 1, "steps": 2, "followed": (2, 1.0)}
    args = read_arguments(parser, small, {"followed": (10_000, 2.0)})
    ours, python = "subjects.chgnet.ours", find_peer("chgnet")
    places = {
        "ours": Place(ours),
        "compiled": Place(ours, {"compiled": True}),
        "heads": Place(ours, {"heads": True}),
        **({"peer": Place("subjects.chgnet.peer", {}, python)} if python else {}),
    }
    rows = []
    for n_atoms in args.atoms:
        rows.append({"atoms": n_atoms} | measure(places, n_atoms, args))
        show(rows[-1])
    figures = collect_columns(rows) | {"peer": "chgnet" if python else None}
    versions = read_side_versions({"ours": Place(ours)}, ["chgnet", "torch", "numpy"])["ours"]
    print_report("chgnet_md", figures, threads=args.threads, versions=versions)


def measure(places: dict[str, Place], n_atoms: int, args: Namespace) -> dict[str, Any]:
    """Measure all sides for one cell."""
    figures = measure_dynamics(
        places,
        make_start(REPEATS[n_atoms]),
        {"steps": args.steps, "followed": args.followed},
        threads=args.threads,
        repeats=args.repeats,
        followed=["ours", "compiled", "peer"],
        operators=True,
    )
    seconds = figures["s"]
    row = {f"{name}_s": seconds.get(name) for name in NAMES} | {"ratio": figures["ratio"]}
    for name in ("compiled", "heads"):
        row[f"{name}_ratio"] = divide(seconds.get("peer"), seconds[name])
    row |= {f"{name}_operators": figures["operators"].get(name) for name in NAMES}
    row |= {f"{n}_drift": figures["drift"].get(n) for n in ("ours", "compiled", "peer")}
    return row | {"deviation": figures["deviation"]}


if __name__ == "__main__":
    main()
