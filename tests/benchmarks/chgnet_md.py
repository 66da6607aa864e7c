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

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import ase.build
import numpy as np
from _chgnet_sides import describe_machine
from _sides import TOLERANCE, Side, take_turns
from ase import units

STEPS = 20
"""Of a block whose time is taken; the forces of its start are a calculation more. In so many steps,
caches that other sides have used in their turns hardly count, as in a long run."""
NAMES = ("ours", "compiled", "heads", "peer")


def main() -> None:
    """Measure all sizes and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="8 atoms, fewer repeats")
    parser.add_argument("--full", action="store_true", help="drift over 20 ps")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.set_defaults(device="cpu")
    args = parser.parse_args()
    rows = [measure(n, args) for n in ([8] if args.small else [8, 32])]
    report = {"name": "chgnet_md", "peer": "chgnet"}
    report |= {key: [row[key] for row in rows] for key in rows[0]}
    print(json.dumps(report | {"threads": args.threads} | describe_machine(args)))


def measure(n_atoms: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measure all sides for one cell."""
    module, threads = "_chgnet_md", args.threads
    with (
        tempfile.TemporaryDirectory() as folder,
        Side(Path(sys.executable), module, threads) as ours,
        Side(Path(sys.executable), module, threads) as compiled,
        Side(Path(sys.executable), module, threads) as heads,
        Side(Path(sys.executable), module, threads, openmp={}) as peer,
    ):
        sides = dict(zip(NAMES, (ours, compiled, heads, peer), strict=True))
        file = Path(folder) / "start.npz"
        np.savez(file, **draw_start(n_atoms))
        for name, side in sides.items():
            side.ask("make", "Dynamics", str(file), {"side": name, "steps": STEPS})
        times = take_turns(sides, "block", 3 if args.small else 7)
        seconds = {name: median(column) / (STEPS + 1) for name, column in times.items()}
        row = {"atoms": n_atoms} | {f"{name}_s": seconds[name] for name in NAMES}
        row |= {"ratio": seconds["peer"] / seconds["ours"]}
        for name in ("compiled", "heads"):
            row[f"{name}_ratio"] = seconds["peer"] / seconds[name]
        row |= {f"{name}_operators": count_operators(side) for name, side in sides.items()}
        results = {}
        for name in ("ours", "compiled", "peer"):
            sides[name].ask("seconds", "simulate_long" if args.full else "simulate")
            sides[name].ask("result", str(Path(folder) / f"{name}.npz"))
            with np.load(Path(folder) / f"{name}.npz") as arrays:
                results[name] = dict(arrays)
    other = results["peer"]["forces"]
    apart = [abs(results[name]["forces"] - other).max() for name in ("ours", "compiled")]
    deviation = float(max(apart) / abs(other).max())
    if not deviation < TOLERANCE:
        raise RuntimeError(f"the two sides do not compute the same: {deviation}")
    drift = {f"{name}_drift": float(result["drift"]) for name, result in results.items()}
    return row | drift | {"deviation": deviation}


def count_operators(side: Side) -> int:
    """Count the operators of one calculation: a step that knows the forces of its start."""
    side.ask("seconds", "step")
    n_operators: int = side.ask("operators", "step")
    return n_operators


def draw_start(n_atoms: int) -> dict[str, np.ndarray]:
    """Return MgO at 300 K."""
    random = np.random.default_rng(0)
    atoms = ase.build.bulk("MgO", "rocksalt", 4.21, cubic=True)
    atoms = atoms.repeat({8: (1, 1, 1), 32: (2, 2, 1)}[n_atoms])
    velocities = random.normal(size=(n_atoms, 3)) * np.sqrt(
        300 * units.kB / atoms.get_masses()[:, None]
    )
    return {
        "numbers": atoms.numbers,
        "positions": atoms.positions + 0.03 * random.normal(size=(n_atoms, 3)),
        "cell": np.array(atoms.cell),
        "velocities": velocities - velocities.mean(axis=0),
    }


if __name__ == "__main__":
    main()
