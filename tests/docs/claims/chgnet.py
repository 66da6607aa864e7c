"""Tables of the page of CHGNet."""

from __future__ import annotations

from ase.units import GPa

from docs.claims.sources import get_mae, get_seconds, list_cases, read_epochs, read_inference
from docs.claims.tables import Cell, Claim

CONVERGENCE = "chgnet/convergence_hfo2"
EQUAL_TIMES = ("reference", "without_heads", "heads", "heads_then_conservative")


def _compute_published() -> list[list[Cell]]:
    energy, forces, stress = (
        get_mae("chgnet/mptrj", "base", name, "train")
        for name in ("energy_per_atom", "forces", "stress")
    )
    # The second row is B. Deng et al., Nat. Mach. Intell. 5, 1031 (2023), table 1.
    return [[[800], [1000 * energy], [1000 * forces], [stress / GPa]], [None, [26], [60], [0.266]]]


def _compute_speeds(prefix: str) -> list[list[Cell]]:
    ratio, memory = f"{prefix}ratio", f"{prefix}memory_ratio"
    return [
        [
            [step["batch_size"], step["atoms"]],
            *([side[key]] for side in (step, prediction) for key in (ratio, memory)),
        ]
        for step, prediction in zip(
            list_cases("chgnet_step_2cores"), list_cases("chgnet_infer_2cores"), strict=True
        )
    ]


def _compute_dynamics() -> list[list[Cell]]:
    return [
        [[case["atoms"]], [case["ratio"]], [case["compiled_ratio"]], [case["heads_ratio"]]]
        for case in list_cases("chgnet_md_compiled_2cores")
    ]


def _compute_costs_of_heads() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for variant in EQUAL_TIMES:
        epochs: list[float] = [len(read_epochs(CONVERGENCE, variant))]
        if variant == "heads_then_conservative":  # goes on from another
            epochs.insert(0, len(read_epochs(CONVERGENCE, "base")))
        errors = (get_mae(CONVERGENCE, variant, name) for name in ("energy_per_atom", "forces"))
        rows.append([None, epochs, *([1000 * error] for error in errors)])
    return rows


def _compute_drifts() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for variant in EQUAL_TIMES[2:1:-1] + EQUAL_TIMES[1::2]:
        run = read_inference(CONVERGENCE, variant)["nve_300k"]
        drift = run["drift_meV_per_atom_per_ps"]
        rows.append([None, [drift], [run["steps"] * run["timestep_fs"] / 1000]])
    return rows


def _compute_iron() -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for variant in ("base", "heads"):
        epochs = read_epochs("chgnet/iron", variant)
        energy, forces, moments = (
            get_mae("chgnet/iron", variant, name)
            for name in ("energy_per_atom", "forces", "magmoms")
        )
        times: list[Cell] = [[len(epochs)], [epochs[-1]["elapsed"]]]
        rows.append([None, *times, [1000 * energy], [1000 * forces], [moments]])
    return rows


def compute_hfo2() -> list[list[Cell]]:
    """Compute force errors and times of MACE and CHGNet on the cells of HfO2."""
    return [
        [
            None,
            [get_mae("mace/hfo2", variant, "forces")],
            [get_seconds("mace/hfo2", variant, "train")],
        ]
        for variant in ("base", "chgnet")
    ]


CLAIMS = [
    Claim(
        "| | energy, meV/atom | forces, meV/Å | stress, GPa |",
        ("chgnet/mptrj",),
        _compute_published,
    ),
    Claim(
        "| published network | training step | its memory | prediction | its memory |",
        ("chgnet_step_2cores", "chgnet_infer_2cores"),
        lambda: _compute_speeds(""),
    ),
    Claim(
        "| with heads | training step | its memory | prediction | its memory |",
        ("chgnet_step_2cores", "chgnet_infer_2cores"),
        lambda: _compute_speeds("heads_"),
    ),
    Claim(
        "| atoms | times faster | [compiled](#chgnet-compiled) | with heads |",
        ("chgnet_md_compiled_2cores",),
        _compute_dynamics,
    ),
    Claim(
        "| training | epochs | energy, meV/atom | forces, meV/Å |",
        (CONVERGENCE,),
        _compute_costs_of_heads,
    ),
    Claim("| training | drift, meV/atom/ps | time followed, ps |", (CONVERGENCE,), _compute_drifts),
    Claim(
        "| training | epochs | time, s | energy, meV/atom | forces, meV/Å | moments, µB |",
        ("chgnet/iron",),
        _compute_iron,
    ),
    Claim(
        "| model | force error, eV/Å | time of training, s |",
        ("mace/hfo2",),
        compute_hfo2,
    ),
]
