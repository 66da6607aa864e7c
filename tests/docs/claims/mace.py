"""Tables of the page of MACE."""

from __future__ import annotations

from docs.claims.chgnet import compute_hfo2
from docs.claims.sources import (
    find_case,
    get_epoch_seconds,
    get_projected_seconds,
    get_seconds,
    read_metrics,
    read_result,
)
from docs.claims.tables import Cell, Claim

SCALING = "mace/scaling"
STRATEGIES = ("balanced", "mace_bins", "mace_bins_by_cost", "next_fit", "pairing", "random")


def _compute_steps() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for atoms in (100, 400, 799):
        for correlation in (2, 3):
            step, infer = (
                find_case(
                    "mace_step_2cores", cases=f"{mode}, {atoms} atoms, correlation {correlation}"
                )
                for mode in ("step", "infer")
            )
            ratios: list[Cell] = [[step["ratio"]], [step["memory_ratio"]], [infer["ratio"]]]
            rows.append([[atoms], [correlation], *ratios])
    return rows


def _compute_compiled() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for max_l in (1, 0):
        for dtype in ("float64", "float32"):
            cases = [
                find_case("mace_infer_2cores", max_l=max_l, dtype=dtype, threads=threads)
                for threads in (1, 2)
            ]
            times = [case["compiled_ms_per_atom"] for case in cases]
            rows.append([None, None, *([case["ratio"]] for case in cases), times])
    return rows


def _compute_kernels() -> list[list[Cell]]:
    kernels = ("tensor product 1", "tensor product 2", "contraction 2", "contraction 3")
    modes = ("forward", "forward and backward", "training")
    rows: list[list[Cell]] = []
    for name in kernels:
        # What trains is the product with weights of pairs: of it the text below the table.
        modes_here = modes[:2] if "tensor product" in name else modes
        ratios: list[Cell] = [
            [find_case("mace_kernels_2cores", cases=f"{name}, {mode}")["ratio"]]
            for mode in modes_here
        ]
        rows.append([None, *ratios, *([None] * (len(modes) - len(ratios)))])
    return rows


def _compute_acac() -> list[list[Cell]]:
    groups = read_metrics("mace/acac")["splits"]["test"]["groups"]
    errors = [groups[f"test_MD_{kelvin}K.xyz"]["forces"]["rmse"] for kelvin in (300, 600)]
    minutes = get_seconds("mace/acac", "base", "train") / 60
    ours: list[Cell] = [None, [minutes], *([1000 * error] for error in errors)]
    # The second row is Batatia et al., NeurIPS 2022, table 4.
    return [ours, [None, None, [5.1], [22.4]]]


def _compute_packing() -> list[list[Cell]]:
    table = read_result("packing_2cores")["table3"]
    rows: list[list[Cell]] = []
    for name in STRATEGIES:
        shares = [table[f"{ranks} ranks"][name]["efficiency"] for ranks in (8, 64, 740)]
        largest = table["740 ranks"][name]["largest_atoms"]
        parts: list[Cell] = [[100 * share] for share in shares]
        rows.append([None, *parts, [largest], [table["seconds"][name]]])
    return rows


def _compute_ablation() -> list[list[Cell]]:
    pairs = [
        ("baseline", "kernels"),
        ("baseline_2ranks", "balancer_2ranks"),
        ("baseline_2ranks", "kernels_2ranks"),
        ("baseline_2ranks", "both_2ranks"),
        ("baseline_2ranks", "ours_2ranks"),
    ]
    measured = [get_epoch_seconds(SCALING, a) / get_epoch_seconds(SCALING, b) for a, b in pairs]
    baseline = get_projected_seconds(SCALING, "baseline", "random", 740)
    projected = [
        baseline / get_projected_seconds(SCALING, "base", strategy, 740)
        for strategy in ("mace_bins", "balanced")
    ]
    # The last row is the paper's, section 5.4.1.
    return [[None, [ratio]] for ratio in (*measured, *projected, 6)]


CLAIMS = [
    Claim(
        "| atoms | correlation | training step | memory of a step | energy and forces |",
        ("mace_step_2cores",),
        _compute_steps,
    ),
    Claim(
        "| features | precision | one core | two cores | ours, ms an atom |",
        ("mace_infer_2cores",),
        _compute_compiled,
    ),
    Claim(
        "| kernel | forward | forward and backward | training |",
        ("mace_kernels_2cores",),
        _compute_kernels,
    ),
    Claim("| model | force error, eV/Å | time of training, s |", ("mace/hfo2",), compute_hfo2),
    Claim("| network | time, min | 300 K | 600 K |", ("mace/acac",), _compute_acac),
    Claim(
        "| sharing | 8 ranks | 64 ranks | 740 ranks | most atoms in a bin, 740 ranks | "
        "time to share |",
        ("packing_2cores",),
        _compute_packing,
    ),
    Claim("| | epoch, times faster |", (SCALING,), _compute_ablation),
]
