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

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import ase.build
import numpy as np
from _machine import name_processor
from _sides import OPENMP, PEERS, TOLERANCE, WARM_UP, Side
from ase import Atoms, units
from chgnet_md import STEPS, draw_start
from mace_infer import draw_network

MACE_ATOMS, CHGNET_ATOMS = 64, 8
PACKAGES = ["torch", "numpy", "ase", "chgnet", "mace-torch", "e3nn", "cuequivariance"]
Start = tuple[Side, dict[str, Any]]
"""A process, and what it is told besides the arrays."""


def measure_mace(dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure the dynamics of MACE."""
    atoms = ase.build.bulk("MgO", "rocksalt", 4.21, cubic=True).repeat(2)
    atoms.rattle(0.03, seed=0)
    n_atoms = MACE_ATOMS
    assert len(atoms) == n_atoms
    sizes = {"channels": args.channels, "max_l": 1, "correlation": 3}
    arrays, options, _ = draw_network(atoms, ["O", "Mg"], **sizes)
    arrays |= {"cell": np.array(atoms.cell), "velocities": draw_velocities(atoms)}
    options |= {"dtype": dtype, "steps": args.steps, "runs": {"simulate": (args.followed, 1.0)}}
    ours = Path(sys.executable)
    starts = {
        "ours": (Side(ours, "_mace_md", args.threads), options | {"compiled": True}),
        "plain": (Side(ours, "_mace_md", args.threads), options | {"compiled": False}),
        "peer": (Side(args.peers_python, "_mace_md_peer", args.threads, {}), options),
    }
    size = {"model": "mace", "atoms": n_atoms, "dtype": dtype}
    return size | measure(arrays, starts, args)


def measure_chgnet(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the dynamics of CHGNet."""
    ours = Path(sys.executable)
    told = {"ours": "compiled", "plain": "ours", "peer": "peer"}
    starts = {
        name: (
            Side(ours, "_chgnet_md", args.threads, {} if name == "peer" else OPENMP),
            {"side": side, "steps": args.steps},
        )
        for name, side in told.items()
    }
    size = {"model": "chgnet", "atoms": CHGNET_ATOMS, "dtype": "float32"}
    return size | measure(draw_start(CHGNET_ATOMS), starts, args)


def measure(
    arrays: Mapping[str, np.ndarray], starts: Mapping[str, Start], args: argparse.Namespace
) -> dict[str, Any]:
    """Measure all sides of a case."""
    with tempfile.TemporaryDirectory() as path, ExitStack() as stack:
        folder = Path(path)
        np.savez(folder / "start.npz", **arrays)
        sides = {name: stack.enter_context(side) for name, (side, _) in starts.items()}
        for name, (_, told) in starts.items():
            sides[name].ask("make", "Dynamics", str(folder / "start.npz"), told)
        times = take_times(sides, args)
        results = {}
        for name, side in sides.items():
            if name != "peer":
                side.ask("seconds", "simulate")
            side.ask("result", str(folder / f"{name}.npz"))
            with np.load(folder / f"{name}.npz") as file:
                results[name] = dict(file)
    forces, expected = results["ours"]["forces"], results["peer"]["forces"]
    deviation = float(abs(forces - expected).max() / abs(expected).max())
    if not deviation < TOLERANCE:
        raise RuntimeError(f"the two sides do not compute the same: {deviation}")
    figures = times | {"deviation": deviation}
    for key in ("drift", "spread"):
        figures[key] = {n: float(result[key]) for n, result in results.items() if n != "peer"}
    return figures


def take_times(sides: Mapping[str, Side], args: argparse.Namespace) -> dict[str, float | None]:
    """Return median times of a calculation on each side, and ratios."""
    for side in sides.values():
        for _ in range(WARM_UP):
            side.ask("seconds", "block")
    rounds = [
        {name: side.ask("both_seconds", "block") for name, side in sides.items()}
        for _ in range(args.repeats)
    ]
    calculations = args.steps + 1  # the forces of the start are one more
    figures: dict[str, float | None] = {}
    for place, kind in enumerate(("s", "processor_s")):
        for name in ("ours", "plain", "peer"):
            times = [one[name][place] / calculations for one in rounds if name in one]
            figures[f"{name}_{kind}"] = median(times) if times else None
    ratios = {
        f"{word}ratio": median(one["peer"][place] for one in rounds)
        / median(one["ours"][place] for one in rounds)
        for place, word in enumerate(("", "processor_"))
    }
    return figures | ratios


def draw_velocities(atoms: Atoms) -> np.ndarray:
    """Draw velocities at 300 K."""
    random = np.random.default_rng(0).normal(size=(len(atoms), 3))
    velocities = random * np.sqrt(300 * units.kB / atoms.get_masses()[:, None])
    return velocities - velocities.mean(axis=0)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"], help="of MACE")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="follow energies for 2 ps")
    parser.add_argument("--small", action="store_true", help="16 channels, few steps and repeats")
    parser.add_argument(
        "--peers-python", type=Path, default=Path(os.environ.get("PEERS_PYTHON", PEERS))
    )
    args = parser.parse_args()
    if not args.peers_python.exists():
        parser.error(f"{args.peers_python}: no such file; run `make peers`, or set PEERS_PYTHON")
    args.channels, args.steps, args.followed = 128, STEPS, 2000 if args.full else 200
    if args.small:
        args.channels, args.steps, args.followed, args.repeats = 16, 3, 20, 2
    return args


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    args = read_arguments()
    rows = []
    for dtype in args.dtypes:
        rows.append(measure_mace(dtype, args))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    rows.append(measure_chgnet(args))
    report = {"name": "potential_md", "peer": "mace-torch, chgnet"}
    report |= {key: [row[key] for row in rows] for key in rows[0]}
    report |= {"channels": args.channels, "correlation": 3, "steps": args.steps}
    report |= {"followed_steps": args.followed, "repeats": args.repeats, "threads": args.threads}
    with (
        Side(Path(sys.executable), "_mace_md", 1) as ours,
        Side(args.peers_python, "_mace_md_peer", 1, {}) as peer,
    ):
        versions = {
            n: side.ask("versions", PACKAGES) for n, side in (("ours", ours), ("peer", peer))
        }
    print(json.dumps(report | {"hardware": name_processor(), "versions": versions}))


if __name__ == "__main__":
    main()
