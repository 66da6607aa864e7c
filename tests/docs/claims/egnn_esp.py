"""Tables of the page of eGNN-ESP."""

from __future__ import annotations

from docs.claims.sources import find_case, read_metrics, read_result
from docs.claims.tables import Cell, Claim

METHODS = ("low_nn", "grid", "auto", "metis", "metis_volume")


def _compute_blocks() -> list[list[Cell]]:
    test = read_metrics("egnn_esp/hfo2")["matrices"]["splits"]["test"]
    return [
        [None, [1000 * test[kind]["model"]], [test[kind]["two_centre"] / test[kind]["model"]]]
        for kind in ("on_site", "off_site")
    ]


def _compute_levels() -> list[list[Cell]]:
    splits = read_metrics("egnn_esp/hfo2")["matrices"]["splits"]
    return [
        [None, *([splits[name]["levels"][side]["occupied"]["mae"]] for name in ("test", "val"))]
        for side in ("model", "two_centre")
    ]


def _compute_steps() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for atoms, side in ((12, "so3"), (12, "so3_lmax"), (12, "dptb"), (96, "dptb")):
        name = f"step, {atoms} atoms, 8 Å, 2 threads, {side}"
        case = find_case("esp_step_2cores", cases=name)
        ratios: list[Cell] = [[case["ratio"]], [case["memory_ratio"]]]
        rows.append([None, [atoms], None, [case["peer_parameters"]], *ratios])
    return rows


def _compute_partitions() -> list[list[Cell]]:
    cases = {(c["method"], c["parts"]): c for c in read_result("partition_2cores")["cases"]}
    keys = ("neighbours_mean", "received_mean", "edge_imbalance", "seconds")
    return [
        [[parts], None, *([cases[method, parts][key]] for key in keys)]
        for parts in (64, 128)
        for method in METHODS
    ]


def _compute_slices() -> list[list[Cell]]:
    result = read_result("partition_slices_2cores")
    cases = {case["method"]: case for case in result["cases"]}
    deep = {(one["method"], one["depth"]): one for one in result["without_exchange"]}
    rows: list[list[Cell]] = []
    for method in ("slices", "grid", "low_nn"):
        case = cases[method]
        counts: list[Cell] = [
            [case["neighbours_mean"]],
            [case["received_mean"]],
            [100 * case["cut_edges"] / result["edges"]],
            [case["edge_imbalance"]],
        ]
        nodes = [deep[method, depth]["times_nodes"] for depth in (1, 2)]
        edges = [deep[method, depth]["times_edges"] for depth in (1, 2, 4)]
        rows.append([None, *counts, nodes, edges])
    return rows


CLAIMS = [
    Claim(
        "| on the run at 2000 K that was held out | network | tables of distances have errors |",
        ("egnn_esp/hfo2",),
        _compute_blocks,
    ),
    Claim("| occupied levels, error | 2000 K | 600 K |", ("egnn_esp/hfo2",), _compute_levels),
    Claim(
        "| other side | atoms | what it computes | parameters | step | memory |",
        ("esp_step_2cores",),
        _compute_steps,
    ),
    Claim(
        "| parts | method | neighbours | received atoms | largest over mean edges | time, s |",
        ("partition_2cores",),
        _compute_partitions,
    ),
    Claim(
        "| method | neighbours | received atoms | edges cut, of all | largest over mean edges | "
        "without exchange, times all atoms: 1; 2 layers | times all edges: 1; 2; 4 layers |",
        ("partition_slices_2cores",),
        _compute_slices,
    ),
]
