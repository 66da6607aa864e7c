"""Molecular dynamics through ASE: MACE and CHGNet against the calculators of their packages.

    make peers
    python tests/benchmarks/potential_md.py [--dtypes float32 float64] [--threads 2] [--full]
                                            [--small]

MgO at 300 K, velocity Verlet, 1 fs, neighbour lists included, everything through an ASE calculator.

| row    | atoms | `ours`                              | `peer`                                   |
|--------|-------|-------------------------------------|------------------------------------------|
| mace   | 64    | what `infer.compile` makes of the   | `MACECalculator` with the same weights   |
|        |       | network; `plain` is the network     | and its own settings                     |
| chgnet | 8     | the same of the published network   | `CHGNetCalculator` with the same weights |

MACE has 128 channels of 0e and 1o, harmonics up to degree 3, correlation 3, cutoff 4.5 Å, two
layers, random weights, and a scale at which the root mean square of forces is 1 eV/Å. Its peer
takes the smaller set of couplings if cuequivariance is installed.

Sides are processes with the same number of threads, which take turns over blocks of steps from the
same start. Times are medians of a calculation; `ratio` is the peer's over ours, of wall time, and
`processor_ratio` of the time that processors spent, which other programs on the machine disturb
less. `drift`, in meV an atom and ps, and `spread`, the standard deviation in meV an atom, are those
of the total energy of ours and of `plain` without a thermostat: of MACE over 200 steps, with
`--full` over 2,000, of CHGNet over 20. `deviation` is how far forces are from the peer's, relative
to the largest. The last line printed is one JSON object, with a list for each figure: one entry a
case.
"""

from argparse import Namespace
from typing import Any

import numpy as np
from ase import Atoms

from harness.blocks import STEPS, measure_dynamics
from harness.command import find_peer, make_parser, read_arguments
from harness.dynamics import make_start
from harness.report import collect_columns, print_report, show
from harness.sides import Place
from harness.structures import pack_structures
from subjects.mace.networks import draw_network, list_places, read_mace_versions

NAMES = ("ours", "plain", "peer")
MACE, CHGNET = (2, 2, 2), (1, 1, 1)
"""Copies of a cell of 8 atoms."""
CHGNET_FOLLOWED = 20
SMALL = {"dtypes": ["float32"], "channels": 8, "steps": 2, "followed": 2, "repeats": 1}


def measure_mace(
    dtype: str, copies: tuple[int, int, int], places: dict[str, Place], args: Namespace
) -> dict[str, Any]:
    """Measure the dynamics of MACE."""
    start = make_start(copies)
    atoms = Atoms(start["numbers"], start["positions"], cell=start["cell"], pbc=True)
    sizes = {"channels": args.channels, "max_l": 1, "correlation": 3}
    weights, options, _ = draw_network([atoms], ["O", "Mg"], scaled=True, **sizes)
    arrays = start | weights | pack_structures([atoms])
    options |= {"dtype": dtype, "steps": args.steps, "followed": (args.followed, 1.0)}
    return {"model": "mace", "dtype": dtype} | measure(places, arrays, options, args)


def measure_chgnet(args: Namespace) -> dict[str, Any]:
    """Measure the dynamics of CHGNet."""
    python = find_peer("chgnet")
    places = {"ours": Place("subjects.chgnet.ours")}
    places |= {"peer": Place("subjects.chgnet.peer", {}, python)} if python else {}
    options = {"steps": args.steps, "followed": (min(CHGNET_FOLLOWED, args.followed), 1.0)}
    size = {"model": "chgnet", "dtype": "float32"}
    return size | measure(places, make_start(CHGNET), options, args)


def measure(
    places: dict[str, Place],
    arrays: dict[str, np.ndarray],
    options: dict[str, Any],
    args: Namespace,
) -> dict[str, Any]:
    """Measure ours, compiled and plain, and the peer."""
    module = places["ours"].module
    sides = {name: Place(module, {"compiled": name == "ours"}) for name in ("ours", "plain")}
    figures = measure_dynamics(
        {**places, **sides},
        arrays,
        options,
        threads=args.threads,
        repeats=args.repeats,
        followed=["ours", "plain"],
    )
    seconds = {end: figures.pop(end) for end in ("s", "processor_s")}
    times = {f"{name}_{end}": one.get(name) for end, one in seconds.items() for name in NAMES}
    return {"atoms": len(arrays["numbers"])} | times | figures


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=5, full="follow energies for 2 ps", peers=True)
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"], help="of MACE")
    parser.set_defaults(channels=128, steps=STEPS, followed=200, copies=MACE)
    args = read_arguments(parser, {**SMALL, "copies": (1, 1, 1)}, {"followed": 2000})
    places, rows = list_places(args), []
    for dtype in args.dtypes:
        rows.append(measure_mace(dtype, args.copies, places, args))
        show(rows[-1])
    rows.append(measure_chgnet(args))
    peers = {"mace": "mace-torch", "chgnet": "chgnet"}
    there = {peers[row["model"]]: None for row in rows if row["peer_s"]}
    figures = collect_columns(rows) | {"peer": ", ".join(there) or None}
    figures |= {"channels": args.channels, "correlation": 3, "steps": args.steps}
    figures |= {"followed_steps": args.followed, "repeats": args.repeats}
    versions = read_mace_versions(places)
    print_report("potential_md", figures, threads=args.threads, versions=versions)


if __name__ == "__main__":
    main()
