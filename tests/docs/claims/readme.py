"""Tables of the README."""

from __future__ import annotations

from docs.claims.sources import find_case, list_cases
from docs.claims.tables import Cell, Claim


def _compute_speeds() -> list[list[Cell]]:
    chgnet = [case["ratio"] for case in list_cases("chgnet_step_2cores")]
    mace = [
        find_case("mace_step_2cores", cases=f"step, {atoms} atoms, correlation {correlation}")
        for correlation in (2, 3)
        for atoms in (100, 400, 799)
    ]
    dynamics = [
        find_case("potential_md_2cores", model="mace", dtype=dtype)["ratio"]
        for dtype in ("float32", "float64")
    ]
    ratios = [case["ratio"] for case in mace]
    gauge = find_case("gauge_step_2cores", cases="step, 4d_staples")
    dirac = find_case("dirac_2cores", cases="operator, 4^4, 1 right-hand sides, complex64")
    spans: list[Cell] = [
        [min(chgnet), max(chgnet)],
        [ratios[0], ratios[2], ratios[3], ratios[5]],
        dynamics,
        [gauge["ratio"]],
        [dirac["ratio"], dirac["tuned_ratio"]],
    ]
    return [[None, None, None, span, None] for span in spans]


CLAIMS = [
    Claim(
        "| | beside | cores | times faster | where it is not |",
        (
            "chgnet_step_2cores",
            "mace_step_2cores",
            "potential_md_2cores",
            "gauge_step_2cores",
            "dirac_2cores",
        ),
        _compute_speeds,
    ),
]
