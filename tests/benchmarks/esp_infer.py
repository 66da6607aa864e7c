"""A prediction of eGNN-ESP against DeePTB: the Hamiltonian of hafnia, nothing differentiated.

    make peers
    python tests/benchmarks/esp_infer.py [--networks paper hfo2] [--copies 1 2] [--threads 1 2]
                                         [--dtypes float32 float64] [--full] [--small]

The shipped cell of 12 atoms, repeated along each vector. The peer is SLEM of DeePTB,
`esp/dptb.py`, with as many channels, degrees and layers: another network for the same task. Both
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

from argparse import Namespace
from itertools import product
from typing import Any

from harness.command import count_cores, make_parser, read_arguments
from harness.report import collect_columns, divide, print_report, scale_times, show
from harness.sides import find_medians, find_single_gains, open_sides, take_turns
from pipeline_egnn_esp.options import ESPOptions
from subjects.esp.compare import FRAME, Peer, find_dptb, read_esp_versions
from subjects.esp.structures import BASIS, read_arrays

PAPER = {"channels": 16, "layers": 2, "parity": False}
HFO2 = {"channels": 32, "hidden_channels": 32, "radial_functions": 32, "layers": 2}
HFO2 |= {"attention_cutoff": 6.0, "bond_cutoff": 5.0, "parity": False}
NETWORKS = {"paper": PAPER, "hfo2": HFO2, "ours": {}}
CUTOFFS = {"paper": 8.0, "hfo2": 10.0, "ours": 8.0}


def measure(
    name: str, copies: int, dtype: str, threads: int, peer: Peer, args: Namespace
) -> dict[str, Any]:
    """Measure both sides of a case."""
    model = ESPOptions(**{**NETWORKS[name], **args.sizes})
    cutoff = args.cutoff or CUTOFFS[name]
    arrays = read_arrays(FRAME, (copies,) * 3, cutoff)
    options = {"model": model.model_dump(), "basis": BASIS, "loss": {}, "dtype": dtype}
    options |= {"cutoff": cutoff}
    with open_sides(peer.list_places(options), "Network", arrays, threads) as sides:
        times = take_turns(sides, "infer", args.repeats)
    n_edges = len(arrays["edge_index"])
    row = {"network": name, "atoms": len(arrays["positions"]), "edges": n_edges}
    row |= {"dtype": dtype, "threads": threads}
    for end, ratio, of_processors in (
        ("s", "ratio", False),
        ("processor_s", "processor_ratio", True),
    ):
        medians = find_medians(times, of_processors=of_processors)
        ours, theirs = medians["ours"], medians.get("peer")
        row |= {f"ours_{end}": ours, f"peer_{end}": theirs, ratio: divide(theirs, ours)}
    return row | scale_times(row, 1e3 / n_edges, "ms_per_edge")


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    parser = make_parser(
        __doc__, repeats=7, full="also 96 atoms, and one thread; half an hour", peers=True
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=[*NETWORKS])
    parser.add_argument("--copies", type=int, nargs="+", default=[1])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--threads", type=int, nargs="+", default=[count_cores()])
    parser.set_defaults(sizes={}, cutoff=None)
    small = {"networks": ["paper"], "repeats": 1, "threads": [1]}
    small |= {"sizes": {"channels": 4}, "cutoff": 4.5}
    full = {"copies": [1, 2], "threads": sorted({1, count_cores()})}
    args = read_arguments(parser, small, full)
    dptb, rows = find_dptb(args), []
    for case in product(args.networks, args.copies, args.dtypes, args.threads):
        rows.append(measure(*case, Peer(dptb), args))
        show(rows[-1])
    figures = collect_columns(rows) | {"peer": "DeePTB" if dptb else None}
    gains = find_single_gains(rows, ["network", "atoms", "threads"], "ours_processor_s")
    figures |= {"single_gain": gains, "repeats": args.repeats}
    print_report("esp_infer", figures, threads=None, versions=read_esp_versions(dptb))


if __name__ == "__main__":
    main()
