"""An amorphous cell of 3,000 atoms: made, trained on and predicted by 1, 2 and 4 ranks.

    python tests/benchmarks/esp_amorphous.py [--small] [--full] [--cell PATH] [--cutoff 4]
                                             [--steps 5] [--channels 8] [--ranks 1 2 4]

Hafnia is melted and quenched by molecular dynamics with the published weights of CHGNet
(`esp/amorphous.py`); `--cell` names a file to keep it in, which is read if it is there. eGNN-ESP
then learns overlaps in double precision, by domains, from the same start on each number of ranks
(`esp/domains.py`); the largest number divides it by slices, too. With the weights that one rank
has found, all predict the matrices.

`loss_difference` is the largest relative difference between losses on several ranks and on one,
`max_difference` the largest between elements of their matrices and those of one, which are at most
1. 1 and 2 ranks use two cores; 4 share them. `waiting_share` is the part of the steps in which rank
0 waits for halos. `cuts` counts exactly what ways to divide the cell cost at 8 Å, the cutoff of
arXiv:2501.19110, and `without_exchange` what virtual nodes would cost instead (see `partition.py`).

The last line printed is one JSON object.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, get_args

import ase.io
import numpy as np
from ase import Atoms

from harness.command import make_parser, read_arguments
from harness.ranks import run_ranks
from harness.report import print_report, read_versions
from pipeline_atoms.neighbours import find_edges
from pipeline_atoms.structure import Structure
from pipeline_kernels.partition import Method, Rows, partition
from subjects.esp.amorphous import REPEAT, STAGES, build_crystal, make_calculator, melt_and_quench
from subjects.virtual_nodes import count_virtual

Stages = tuple[tuple[float, int], ...]
PAPER_CUTOFF = 8.0  # Å
DEPTHS = (1, 2)
SHORT_STAGES, SMALL_STAGES = ((6000.0, 20), (300.0, 10)), ((6000.0, 2), (300.0, 1))


def make_cell(
    path: Path, copies: tuple[int, int, int], stages: Stages, folder: Path
) -> tuple[Atoms, dict[str, float]]:
    """Return the amorphous cell, and what is known of how it was made."""
    if path.is_file():
        return ase.io.read(path), {}
    atoms, facts = melt_and_quench(build_crystal(copies), make_calculator(), stages, folder)
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
                counted = (count_virtual(labels, rows, n, depth) for depth in DEPTHS)
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
    """Measure all numbers of ranks and print one JSON object as the last line."""
    parser = make_parser(__doc__, full="3,000 atoms; an hour")
    parser.add_argument("--cell", type=Path, help="file of the amorphous cell, made if missing")
    parser.add_argument("--cutoff", type=float, default=4.0, help="longest edge of the network, Å")
    parser.add_argument("--steps", type=int, default=5, help="of training")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="beside one")
    parser.set_defaults(copies=(3, 2, 2), stages=SHORT_STAGES, parts=[2, 4])
    small = {"copies": (2, 2, 1), "stages": SMALL_STAGES, "steps": 2, "ranks": [1, 2]}
    small |= {"channels": 4, "parts": [2]}
    full = {"copies": REPEAT, "stages": STAGES, "parts": [2, 4, 18]}
    args = read_arguments(parser, small, full)
    numbers = sorted(args.ranks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = args.cell or folder / "amorphous.xyz"
        atoms, facts = make_cell(path, args.copies, args.stages, folder)
        case = {"cell": str(path.absolute()), "cutoff": args.cutoff, "steps": args.steps}
        case |= {"channels": args.channels}
        ways = [("auto", 1), *(("auto", n) for n in numbers if n > 1), ("slices", numbers[-1])]
        runs = [
            run_ranks(
                "subjects.esp.domains",
                [json.dumps(case | {"method": method}), str(folder)],
                n,
                2 if n == 1 else 1,
            )
            for method, n in ways
        ]
        difference = compare(folder, ways)
    alone = np.array(runs[0]["losses"])
    figures = {
        "atoms": len(atoms),
        "edges": sum(runs[0]["edges"]),
        "max_difference": difference,
        "loss_difference": max(float(np.abs(run["losses"] / alone - 1).max()) for run in runs),
        "runs": runs,
        "cell": facts,
        "cutoff": args.cutoff,
        "channels": args.channels,
        **count_cuts(atoms, args.parts),
    }
    print_report("esp_amorphous", figures, threads=2, versions=read_versions("torch", "chgnet"))


if __name__ == "__main__":
    main()
