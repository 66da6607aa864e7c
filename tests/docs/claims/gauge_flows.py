"""Tables of the page of gauge flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docs.claims.sources import (
    find_case,
    get_run,
    read_epochs,
    read_inference,
    read_metrics,
    read_records,
    read_result,
)
from docs.claims.tables import Cell, Claim

LOOPS = "gauge_flows/loops"
ENSEMBLES = "gauge_flows/ensembles"
MARGINAL = "gauge_flows/marginal_2d"
DEPTH = "gauge_flows/depth"
KERNELS = (
    "spectral map with gradient",
    "exponential with gradient",
    "residual step with gradient",
    "products along paths with gradient",
    "layer of staples with gradient",
)


def _get_lattice(name: str, variant: str, place: int = 0) -> dict[str, Any]:
    lattice: dict[str, Any] = read_metrics(name, variant)["flow"]["lattices"][place]
    return lattice


def _unpack(number: Mapping[str, float]) -> list[float]:
    return [number["value"], number["error"]]


def _span(values: Sequence[float]) -> list[float]:
    return [min(values), max(values)]


def _compute_loops() -> list[list[Cell]]:
    sides = (
        ("learned_0", "learned_1", "learned_2"),
        ("base", "plaquette_1", "plaquette_2"),
        ("plaquette_long_0", "plaquette_long_1", "plaquette_long_2"),
    )
    rows: list[list[Cell]] = []
    for variants in sides:
        times = [read_epochs(LOOPS, variant)[-1]["elapsed"] for variant in variants]
        lattices = [_get_lattice(LOOPS, variant) for variant in variants]
        sizes = [number for one in lattices for number in _unpack(one["ess"])]
        divergences = [one["kl"]["reverse"]["value"] for one in lattices]
        rows.append([None, None, _span(times), sizes, _span(divergences)])
    return rows


def _compute_other_loops() -> list[list[Cell]]:
    lattice = _get_lattice(LOOPS, "staples")
    time = read_epochs(LOOPS, "staples")[-1]["elapsed"]
    return [[None, None, [time], _unpack(lattice["ess"]), _unpack(lattice["kl"]["reverse"])]]


def _compute_loops_2d() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for side in ("learned_2d", "plaquette_2d"):
        lattices = [_get_lattice(LOOPS, f"{side}_{seed}") for seed in range(3)]
        sizes = [one["ess"]["value"] for one in lattices]
        rows.append([None, sizes, _span([one["kl"]["reverse"]["value"] for one in lattices])])
    staples = _get_lattice(LOOPS, "staples_2d")
    return [*rows, [None, [staples["ess"]["value"]], [staples["kl"]["reverse"]["value"]]]]


def _compute_gluons() -> list[list[Cell]]:
    flow = read_metrics(ENSEMBLES)["flow"]
    small, large = flow["lattices"]
    law = _unpack(flow["volume_law"][1]["expected"])
    return [
        [None, [small["identity"]["ess"]["value"]], _unpack(small["ess"]), None],
        [None, None, _unpack(large["ess"]), law],
    ]


def _compute_tmlqcd() -> list[list[Cell]]:
    result = read_result("tmlqcd_sample_2cores")
    names = ("plaquette", "c1_c0", "c2_c0")
    return [
        [None, *(result["published"][name] for name in names)],
        [None, *([result[name], result[f"{name}_error"]] for name in names)],
    ]


def _compute_quarks() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name, variant, place in (
        (MARGINAL, "base", 0),
        (ENSEMBLES, "marginal", 0),
        (ENSEMBLES, "conditional", 1),
        (ENSEMBLES, "marginal_paper_step", 0),
    ):
        lattice = _get_lattice(name, variant, place)
        with_flow = _unpack(lattice["ess"])
        if place:
            law = read_metrics(name, variant)["flow"]["volume_law"][place]["expected"]
            with_flow.append(law["value"])
        rows.append([None, None, _unpack(lattice["identity"]["ess"]), with_flow])
    return [*rows, [None, None, [0.94], [0.997]]]  # the paper's section 3


def _compute_shots() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name, variant in ((MARGINAL, "base"), (ENSEMBLES, "conditional")):
        shots = _get_lattice(name, variant)["pseudofermions"]
        given = [_unpack(shots["given_links"][side]) for side in ("identity", "flow")]
        rows.append([None, *given, _unpack(shots["mean"]["flow"])])
    large = _get_lattice(ENSEMBLES, "conditional", 1)["pseudofermions"]
    rows.append([None, None, None, _unpack(large["mean"]["flow"])])
    return [*rows, [None, [0.994], [0.996], None]]  # the paper's section 3


def _read_pion() -> dict[str, Any]:
    report: dict[str, Any] = read_inference(ENSEMBLES, "pion")["derivatives"]["report"]
    return report


def _compute_elements() -> list[list[Cell]]:
    element = _read_pion()["observables"]["pion_element_4"]
    return [[None, _unpack(element[key])] for key in ("flow", "epsilon_best", "independent")]


def _compute_costs() -> list[list[Cell]]:
    seconds = _read_pion()["seconds"]
    names = ("generation", "measurement", "flow", "reweighting")
    return [[None, [1000 * seconds[name]]] for name in names]


def _compute_steps() -> list[list[Cell]]:
    sides = (("4d_staples",), ("2d", "4d_learned"), ("4d_plaquette",))
    rows: list[list[Cell]] = []
    for flows in sides:
        step, draw = (
            [find_case("gauge_step_2cores", cases=f"{mode}, {flow}") for flow in flows]
            for mode in ("step", "draw")
        )
        rows.append(
            [None, None, *([one[key] for one in step] for key in ("ratio", "memory_ratio"))]
        )
        rows[-1].append([one["ratio"] for one in draw])
    residual = [
        find_case("gauge_step_residual_1core", cases=f"{mode}, 4d_residual")
        for mode in ("step", "draw")
    ]
    memory = [residual[0]["memory_ratio"]]
    return [*rows, [None, None, [residual[0]["ratio"]], memory, [residual[1]["ratio"]]]]


def _compute_memory() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for variant in ("base", "shallow", "shallow_graph"):
        (peak,) = [
            record["peak_memory"]
            for record in read_records(get_run(DEPTH, variant).folder)
            if record["stage"] == "train"
        ]
        rows.append([None, None, [peak / 1e9]])
    return rows


def _compute_kernels() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for kernel in KERNELS:
        cases = [
            find_case("su3_kernels_2cores", cases=f"{kernel}, {dtype}, 131072")
            for dtype in ("complex128", "complex64")
        ]
        rows.append([None, *([case["ratio"], case["roofline_share"]] for case in cases)])
    return rows


def _compute_dirac() -> list[list[Cell]]:
    one = find_case("dirac_2cores", cases="operator, 4^4, 1 right-hand sides, complex64")
    many = find_case("dirac_2cores", cases="operator, 8^4, 12 right-hand sides, complex64")
    return [
        [None, [1e6 * one["ours_s"]], [one["ratio"]], [one["tuned_ratio"]]],
        [None, [1e3 * many["ours_s"], many["gflops"]], [many["ratio"]], [many["tuned_ratio"]]],
    ]


CLAIMS = [
    Claim(
        "| active loops | steps | time of one core | effective sample size, three seeds | "
        "divergence |",
        (LOOPS,),
        _compute_loops,
    ),
    Claim(
        "| active loops | steps | time | effective sample size | divergence |",
        (LOOPS,),
        _compute_other_loops,
    ),
    Claim(
        "| active loops | effective sample size, three seeds | divergence |",
        (LOOPS,),
        _compute_loops_2d,
    ),
    Claim(
        "| lattice, configurations | ESS of the step | with the flow | by the volume law |",
        (ENSEMBLES,),
        _compute_gluons,
    ),
    Claim("| | plaquette | C(1)/C(0) | C(2)/C(0) |", ("tmlqcd_sample_2cores",), _compute_tmlqcd),
    Claim(
        "| experiment | step | without | with the flow |", (ENSEMBLES, MARGINAL), _compute_quarks
    ),
    Claim(
        "| experiment | ESS of single shots | with the flow | mean of the shots over the exact "
        "ratio |",
        (ENSEMBLES, MARGINAL),
        _compute_shots,
    ),
    Claim("| by | matrix element |", (ENSEMBLES,), _compute_elements),
    Claim("| a configuration takes | time |", (ENSEMBLES,), _compute_costs),
    Claim(
        "| flow | cores | training step | memory of a step | drawing samples |",
        ("gauge_step_2cores", "gauge_step_residual_1core"),
        _compute_steps,
    ),
    Claim("| layers | `train.memory` | peak |", (DEPTH,), _compute_memory),
    Claim(
        "| kernel | double precision | single precision |",
        ("su3_kernels_2cores",),
        _compute_kernels,
    ),
    Claim(
        "| case | ours | formula in PyTorch | PyTorch written for speed |",
        ("dirac_2cores",),
        _compute_dirac,
    ),
]
