"""An amorphous cell of 3,000 atoms: made, trained on and predicted by 1, 2 and 4 ranks.

    python tests/benchmarks/esp_amorphous.py [--small] [--cell PATH] [--cutoff 4] [--steps 5]
                                             [--channels 8] [--ranks 1 2 4]

Hafnia is melted and quenched by molecular dynamics with the published weights of CHGNet
(`_amorphous.py`); `--cell` names a file to keep it in, which is read if it is there. eGNN-ESP then
learns overlaps in double precision, by domains, from the same start on each number of ranks
(`_esp_domains.py`); the largest number divides it by slices, too. With the weights that one rank
has found, all predict the matrices.

`loss_difference` is the largest relative difference between losses on several ranks and on one,
`max_difference` the largest between elements of their matrices and those of one, which are at most
1. 1 and 2 ranks use two cores; 4 share them. `waiting_share` is the part of the steps in which rank
0 waits for halos. `cuts` counts exactly what ways to divide the cell cost at 8 Å, the cutoff of
arXiv:2501.19110, and `without_exchange` what virtual nodes would cost instead (see `partition.py`).

The last line printed is one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

import ase.io
import numpy as np
from _amorphous import REPEAT, STAGES, build_crystal, make_calculator, melt_and_quench
from _machine import describe_host
from ase import Atoms

from pipeline_core.neighbours import find_edges
from pipeline_core.structure import Structure
from pipeline_kernels.partition import Method, Rows, count_virtual, partition

PAPER_CUTOFF = 8.0  # Å
DEPTHS = (1, 2)
SMALL_STAGES = ((6000.0, 6), (300.0, 4))


def run_ranks(case: dict[str, Any], ranks: int, folder: Path) -> dict[str, Any]:
    """Return what the ranks measure."""
    words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    program = str(Path(__file__).with_name("_esp_domains.py"))
    done = subprocess.run(
        [sys.executable, *words, program, json.dumps(case), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": str(2 if ranks == 1 else 1)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(result), flush=True)
    return result


def make_cell(path: Path, small: bool, folder: Path) -> tuple[Atoms, dict[str, float]]:
    """Return the amorphous cell, and what is known of how it was made."""
    if path.is_file():
        return ase.io.read(path), {}
    repeat, stages = ((2, 2, 2), SMALL_STAGES) if small else (REPEAT, STAGES)
    atoms, facts = melt_and_quench(build_crystal(repeat), make_calculator(), stages, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    atoms.calc = None
    ase.io.write(path, atoms, format="extxyz")
    print(json.dumps(facts), flush=True)
    return atoms, facts


def count_cuts(atoms: Atoms, parts: list[int]) -> dict[str, list[dict[str, Any]]]:
    """Return what each way to divide a cell costs, with an exchange in each layer and without."""
    cell, pbc = np.array(atoms.cell), np.array(atoms.pbc)
    structure = Structure(atoms.numbers.astype(np.int32), atoms.positions, cell, pbc)
    edges, _ = find_edges(structure, PAPER_CUTOFF, np.arange(len(atoms)))
    rows, cuts, virtual = Rows.of(edges, len(atoms)), [], []
    for n in parts:
        for method in get_args(Method):
            labels = partition(atoms.positions, cell, pbc, edges, n, PAPER_CUTOFF, method)
            facts = {"method": method, "parts": n}
            cuts.append(facts | rows.measure(labels, n).summarize() | {"edges": len(edges)})
            if method == "slices":
                counted = (count_virtual(labels, rows, n, depth).summarize() for depth in DEPTHS)
                virtual += [facts | one for one in counted]
    return {"cuts": cuts, "without_exchange": virtual}


def compare(folder: Path, runs: list[tuple[str, int]]) -> float:
    """Return the largest difference between elements of the matrices and those of one rank."""
    serial = list(np.load(folder / "auto_1.npz").values())
    largest = 0.0
    for method, ranks in runs:
        nodes, ends, shifts, edges = np.load(folder / f"{method}_{ranks}.npz").values()
        assert np.array_equal(ends, serial[1])
        assert np.array_equal(shifts, serial[2])
        for ours, theirs in ((nodes, serial[0]), (edges, serial[3])):
            largest = max(largest, float(np.abs(ours - theirs).max()))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="96 atoms, few steps")
    parser.add_argument("--cell", type=Path, help="file of the amorphous cell, made if missing")
    parser.add_argument("--cutoff", type=float, default=4.0, help="longest edge of the network, Å")
    parser.add_argument("--steps", type=int, default=5, help="of training")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="beside one")
    args = parser.parse_args()
    numbers = sorted(args.ranks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = args.cell or folder / "amorphous.xyz"
        atoms, facts = make_cell(path, args.small, folder)
        case = {"cell": str(path.absolute()), "cutoff": args.cutoff, "steps": args.steps}
        case |= {"channels": args.channels}
        ways = [("auto", 1), *(("auto", n) for n in numbers if n > 1), ("slices", numbers[-1])]
        runs = [run_ranks(case | {"method": m}, n, folder) for m, n in ways]
        difference = compare(folder, ways)
    alone = np.array(runs[0]["losses"])
    apart = max(float(np.abs(run["losses"] / alone - 1).max()) for run in runs)
    report = {"name": "esp_amorphous", "atoms": len(atoms), "edges": sum(runs[0]["edges"])}
    report |= {"max_difference": difference, "loss_difference": apart, "runs": runs}
    report |= {"cell": facts, "cutoff": args.cutoff, "channels": args.channels}
    report |= count_cuts(atoms, [2, 4] if args.small else [2, 4, 18])
    print(json.dumps(report | describe_host("torch", "chgnet")))


if __name__ == "__main__":
    main()
