"""A prediction of eGNN-ESP against DeePTB: the Hamiltonian of hafnia, nothing differentiated.

    make peers
    python tests/benchmarks/esp_infer.py [--networks paper hfo2] [--copies 1 2] [--threads 1 2]
                                         [--dtypes float32 float64] [--small]

The shipped cell of 12 atoms, repeated along each vector. The peer is SLEM of DeePTB,
`_esp_dptb.py`, with as many channels, degrees and layers: another network for the same task. Both
are called with a finished graph, and calculate all that depends on positions.

| network | is                                                                              |
|---------|---------------------------------------------------------------------------------|
| `paper` | 16 channels, two layers, attention to all edges, cutoff 8 Å, without parity     |
| `hfo2`  | that of `egnn_esp/hfo2`: 32 channels, attention to 6 Å, densities around edges  |
|         | to 5 Å, cutoff 10 Å                                                             |
| `ours`  | the default options, with parity and three layers, cutoff 8 Å                   |

Sides are processes with as many threads, which take turns; figures are medians. `ratio` is of wall
times, `processor_ratio` of the time that processors spent, which other programs disturb less;
`single_gain` is how many times faster ours is in single precision. The last line printed is one
JSON object, with a list for each figure: one entry a case.
"""

import argparse
import json
import os
import sys
import tempfile
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _esp_sides import Peer, pair
from _esp_structures import BASIS, read_arrays
from _sides import PEERS, WARM_UP, make
from esp_step import FRAME, describe_machine, has_dptb

from pipeline_egnn_esp.options import ESPOptions

PAPER = {"channels": 16, "layers": 2, "cutoff": 8.0, "parity": False}
HFO2 = {"channels": 32, "hidden_channels": 32, "radial_functions": 32, "layers": 2}
HFO2 |= {"attention_cutoff": 6.0, "bond_cutoff": 5.0, "cutoff": 10.0, "parity": False}
NETWORKS = {"paper": PAPER, "hfo2": HFO2, "ours": {"cutoff": 8.0}}


def measure(
    name: str, copies: int, dtype: str, threads: int, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure both sides of a case."""
    model = ESPOptions(**{**NETWORKS[name], **args.sizes})
    arrays = read_arrays(FRAME, (copies,) * 3, model.cutoff)
    options = {"model": model.model_dump(), "basis": BASIS, "loss": {}, "dtype": dtype}
    peer = Peer("dptb", args.peers_python)
    with tempfile.TemporaryDirectory() as folder, pair(peer, threads) as sides:
        file = Path(folder) / "subject.npz"
        np.savez(file, **arrays)
        make(sides, ("Network", str(file), options))
        figures = take_times(sides, args.repeats)
    n_edges = len(arrays["edge_index"])
    case = {"network": name, "atoms": len(arrays["positions"]), "edges": n_edges}
    per_edge = {f"{key}_ms_per_edge": 1e3 * figures[f"{key}_s"] / n_edges for key in sides}
    return case | {"dtype": dtype, "threads": threads} | figures | per_edge


def take_times(sides: dict[str, Any], repeats: int) -> dict[str, float]:
    """Return median times of a prediction on sides that take turns, and their ratios."""
    for side in sides.values():
        for _ in range(WARM_UP):
            side.ask("seconds", "forward")
    rounds = [
        {name: side.ask("both_seconds", "forward") for name, side in sides.items()}
        for _ in range(repeats)
    ]
    wall, spent = ({name: median(one[name][k] for one in rounds) for name in sides} for k in (0, 1))
    figures = {f"{name}_s": seconds for name, seconds in wall.items()}
    figures |= {f"{name}_processor_s": seconds for name, seconds in spent.items()}
    return figures | {
        "ratio": wall["peer"] / wall["ours"],
        "processor_ratio": spent["peer"] / spent["ours"],
    }


def find_single_gains(rows: list[dict[str, Any]]) -> list[float | None]:
    """Return how many times faster a case is in single precision, None where only one is there."""
    keys = ("network", "atoms", "threads")
    seconds = {(*(row[k] for k in keys), row["dtype"]): row["ours_processor_s"] for row in rows}
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
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS])
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, cores}))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--peers-python",
        type=Path,
        default=Path(os.environ.get("PEERS_PYTHON", PEERS)),
        help="interpreter that has dptb; else $PEERS_PYTHON, else that of make peers",
    )
    parser.add_argument("--small", action="store_true", help="a trial: few edges and channels")
    args = parser.parse_args()
    args.peers = ["dptb"]
    if not has_dptb(args.peers_python):
        parser.error(f"{args.peers_python} lacks dptb; run `make peers`, or set PEERS_PYTHON")
    args.sizes = {"channels": 4, "cutoff": 4.5} if args.small else {}
    if args.small:
        vars(args).update(copies=[1], repeats=1, threads=[1], networks=["paper"])
    return args


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    args, rows = read_arguments(), []
    for case in product(args.networks, args.copies, args.dtypes, args.threads):
        rows.append(measure(*case, args))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    report = {"name": "esp_infer", "peer": "DeePTB"}
    report |= {key: [row[key] for row in rows] for key in rows[0]}
    report |= {"single_gain": find_single_gains(rows)} | describe_machine(args)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
