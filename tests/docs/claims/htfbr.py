"""Tables of the page of HT-FBR."""

from __future__ import annotations

from docs.claims.sources import find_case, read_result
from docs.claims.tables import Cell, Claim


def _compute_fits() -> list[list[Cell]]:
    result = read_result("htfbr_accuracy_2cores")
    seconds = {key: one["mean"] for key, one in result["seconds"].items()}
    rows: list[list[Cell]] = [
        [None, [result["paper"]], None, None],  # the paper's table 2
        [None, [result["test_rmse"]], [result["off_grid_rmse"]], [seconds["rank 10"]]],
        [
            None,
            [result["test_rmse_adaptive"]],
            [result["off_grid_rmse_adaptive"]],
            [seconds["adaptive"]],
        ],
    ]
    for name in ("polynomials", "cosines", "gaussian", "tensap"):
        fit = result["baselines"][name]
        rows.append([None, *([fit[key]] for key in ("test_rmse", "off_grid_rmse", "seconds"))])
    return rows


def _compute_epochs() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name in ("hono", "ethene"):
        case = find_case("htfbr_epoch_2cores", cases=f"{name} float32")
        label = [case["points"], case["parameters"]]
        ratios: list[Cell] = [[case["ratio"]], [case["ratio_dataloader"]]]
        rows.append([label, [1000 * case["ours_s"]], *ratios])
    return rows


CLAIMS = [
    Claim(
        "| fit | test (on the grid) | off the grid | time |",
        ("htfbr_accuracy_2cores",),
        _compute_fits,
    ),
    Claim(
        "| surface | ours | torch, points in memory | torch, DataLoader |",
        ("htfbr_epoch_2cores",),
        _compute_epochs,
    ),
]
