"""Partitions of the 24,000 atoms of the eGNN-ESP paper, beside METIS: quality and time.

    python tests/benchmarks/partition.py [--parts 32 64 96 128] [--tiles 2 2 2] [--seed 0]
                                         [--repeats 3] [--cutoff 12] [--without-volume]

A random packing of the size and density of the paper's HfO2 (figure 5), 14.5 million edges at 12 Å.
Figures are counted exactly. Times are processor seconds of one thread, the smallest of `repeats`
calls for our methods and of one for METIS and for `auto` where it takes seconds. What all methods
share is timed apart: `rows_s` groups the edges by receiver and counts the degrees, `adjacency_s`
brings them into the form of METIS. So `low_nn` is timed from positions and degrees to labels,
METIS from its adjacency to labels, `grid` and `auto` from positions and rows to labels.

`metis` is the paper's baseline: pymetis as it comes, nodes of weight one. `metis_volume` is METIS
with its volume objective and nodes weighted by degree, the better rival in volume. `slices` are
slabs of equal width (arXiv:2501.19110).

`without_exchange` counts what parts compute if nothing is exchanged and virtual nodes stand for
what would be received, as with the slices of that paper: how many times the nodes and the edges of
the structure all parts together work on until own nodes are exact after `depth` layers. The paper's
network has one layer, and leaves out the blocks of `cut_edges`; these need a depth of one more. Its
HfO2 is cut for training by `--tiles 1 1 1 --parts 18 --cutoff 8`.

The last line printed is one JSON object. `neighbour_ratio` is the worst of `auto` over `metis` in
mean neighbours at 64 and 128 parts (those of them that are run), `sent_ratio` the same of the nodes
sent. `ours_s` and `peer_s` are `low_nn` and METIS at 64 parts, or at the most parts that are run.
"""

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.command import make_parser, read_arguments
from harness.report import print_report, read_versions, show
from pipeline_kernels.partition import (
    MESSAGE,
    PlaneCoordinates,
    Rows,
    count_exchange,
    cut_by_low_nn,
    cut_by_metis,
    cut_by_metis_volume,
    cut_by_slices,
    find_candidates,
    find_grids,
    make_adjacency,
    refine,
)
from pipeline_kernels.partition.synthetic import HFO2_BOX, draw_packing, find_edges
from subjects.virtual_nodes import count_virtual

DEPTHS = (1, 2, 4)
LINK = {"latency": 20e-6, "bandwidth": 20.4e9, "bytes_per_node": 1600.0}

Labels = np.ndarray


class Case:
    """One structure and all ways to share it."""

    def __init__(self, tiles: tuple[int, int, int], seed: int, cutoff: float) -> None:
        positions, cell = draw_packing(3000, HFO2_BOX, tiles, seed)
        edges = find_edges(positions, cell, cutoff)
        Rows.of(edges[:1], len(positions))  # compiles
        self.rows, self.rows_s = time_calls(lambda: Rows.of(edges, len(positions)))
        self.positions, self.cell = positions, cell
        self.cutoff = cutoff
        self.graph, self.adjacency_s = time_calls(lambda: make_adjacency(self.rows))

    def coordinates(self) -> PlaneCoordinates:
        """Return the coordinates, which our methods make anew each time."""
        return PlaneCoordinates.of(self.positions, self.cell, (True, True, True), self.cutoff)

    def low_nn(self, n_parts: int) -> Labels:
        """Bisect."""
        return cut_by_low_nn(self.coordinates(), self.rows.weights, n_parts)

    def grid(self, n_parts: int) -> Labels:
        """Take the fastest grid."""
        return find_grids(self.coordinates(), self.rows, n_parts, MESSAGE)[0].labels

    def auto(self, n_parts: int) -> Labels:
        """Choose from the Pareto set and refine."""
        best = find_candidates(self.coordinates(), self.rows, n_parts, MESSAGE)[0]
        return refine(best.labels, self.rows, n_parts, MESSAGE)

    def metis(self, n_parts: int) -> Labels:
        """Call the baseline."""
        return cut_by_metis(self.graph, n_parts)

    def metis_volume(self, n_parts: int) -> Labels:
        """Call the stronger rival."""
        return cut_by_metis_volume(self.graph, n_parts, self.rows.degrees)

    def slices(self, n_parts: int) -> Labels:
        """Cut into slices of equal width."""
        return cut_by_slices(self.coordinates(), n_parts)

    def count_virtual(self, name: str, n_parts: int) -> list[dict[str, Any]]:
        """Return what parts compute without an exchange, by depth."""
        labels, facts = getattr(self, name)(n_parts), {"method": name, "parts": n_parts}
        return [facts | count_virtual(labels, self.rows, n_parts, depth) for depth in DEPTHS]

    def measured(self, name: str, n_parts: int, repeats: int) -> dict[str, Any]:
        """Return the figures and the time of one method."""
        labels, seconds = time_calls(lambda: getattr(self, name)(n_parts), repeats)
        actual = self.rows.measure(labels, n_parts)
        exchange = count_exchange(actual, MESSAGE) * LINK["bytes_per_node"] / LINK["bandwidth"]
        model = {"exchange_us": 1e6 * exchange, "seconds": seconds}
        return {"method": name, "parts": n_parts} | actual.summarize() | model


def time_calls(call: Callable[[], Any], repeats: int = 1) -> tuple[Any, float]:
    """Return the result and the smallest processor time; calls of seconds are not repeated."""
    times: list[float] = []
    while len(times) < repeats and not (times and times[0] > 1):
        begin = time.process_time()
        result = call()
        times.append(time.process_time() - begin)
    return result, min(times)


def find_worst(rows: list[dict[str, Any]], figure: str) -> float:
    """Return the largest ratio of `auto` to METIS at 64 and 128 parts, or at those run."""
    by_case = {(row["method"], row["parts"]): row[figure] for row in rows}
    run = {row["parts"] for row in rows}
    return max(by_case["auto", parts] / by_case["metis", parts] for parts in run & {64, 128} or run)


def main() -> None:
    """Measure all methods and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=3)
    parser.add_argument("--parts", type=int, nargs="+", default=[32, 64, 96, 128])
    parser.add_argument(
        "--tiles", type=int, nargs=3, default=[2, 2, 2], help="copies of 3000 atoms"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cutoff", type=float, default=12.0, help="longest edge, Å")
    parser.add_argument("--without-volume", action="store_true", help="METIS by edge cut alone")
    small = {"parts": [4], "tiles": [1, 1, 1], "cutoff": 5.0, "repeats": 1}
    args = read_arguments(parser, small)
    methods = ["low_nn", "grid", "auto", "slices", "metis", "metis_volume"]
    methods = methods[: 5 if args.without_volume else 6]
    case = Case(tuple(args.tiles), args.seed, args.cutoff)
    for name in ("low_nn", "auto"):
        getattr(case, name)(2)  # compiles
    rows = []
    for parts in args.parts:
        for name in methods:
            rows.append(case.measured(name, parts, args.repeats))
            show(rows[-1])
    virtual = [
        row
        for parts in args.parts
        for name in ("slices", "low_nn", "grid")
        for row in case.count_virtual(name, parts)
    ]
    timed_parts = 64 if 64 in args.parts else max(args.parts)
    seconds = {row["method"]: row["seconds"] for row in rows if row["parts"] == timed_parts}
    figures = {
        "neighbour_ratio": find_worst(rows, "neighbours_mean"),
        "sent_ratio": find_worst(rows, "total_sent"),
        "ours_s": seconds["low_nn"],
        "peer": "METIS, k-way by edge cut (pymetis)",
        "peer_s": seconds["metis"],
        "ratio": seconds["metis"] / seconds["low_nn"],
        "ratio_of": f"processor seconds of METIS over low_nn at {timed_parts} parts",
        "cases": rows,
        "without_exchange": virtual,
        "atoms": len(case.rows),
        "edges": len(case.rows.senders),
        "cutoff": args.cutoff,
        "rows_s": case.rows_s,
        "adjacency_s": case.adjacency_s,
        "link": LINK,
        "seed": args.seed,
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    versions = read_versions("numba", "numpy", "pymetis")
    print_report("partition", figures, threads=1, versions=versions)


if __name__ == "__main__":
    main()
