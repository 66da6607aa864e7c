"""Molecular dynamics on several sides, which take turns over blocks of steps."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.report import divide
from harness.sides import (
    TOLERANCE,
    Place,
    Side,
    Times,
    find_medians,
    open_sides,
    take_turns,
)

STEPS = 20
"""Of a block whose time is taken; the forces of its start are a calculation more. In so many steps,
caches that other sides have used in their turns hardly count, as in a long run."""


def measure_dynamics(
    places: Mapping[str, Place],
    arrays: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    threads: int,
    repeats: int,
    followed: list[str],
    operators: bool = False,
) -> dict[str, Any]:
    """Measure a calculation on all sides, and follow energies without a thermostat.

    Args:
        places: Of the sides; `ours` and those whose name is in `followed` have the peer's weights.
        arrays: Of the cell, and weights.
        options: What all sides are told, see `Simulation`.
        threads: Of each side.
        repeats: Rounds.
        followed: Sides whose energy is followed.
        operators: Whether to count those of a calculation.

    Returns:
        Figures; those of sides by the figure's name and then the side's.

    Raises:
        RuntimeError: The sides do not compute the same forces.
    """
    told = {
        name: Place(place.module, {**options, **place.options}, place.python)
        for name, place in places.items()
    }
    with open_sides(told, "Dynamics", arrays, threads) as sides:
        times = take_turns(sides, "block", repeats)
        figures: dict[str, Any] = summarize(times, options["steps"] + 1)
        if operators:
            figures["operators"] = {name: count_operators(side) for name, side in sides.items()}
        results = {}
        for name, side in sides.items():
            if name in followed:
                side.ask("seconds", "simulate")
            results[name] = side.compute()
    same = {name: result["forces"] for name, result in results.items() if name in followed}
    figures["deviation"] = (
        find_deviation(same, results["peer"]["forces"]) if "peer" in sides else None
    )
    for key in ("drift", "spread"):
        figures[key] = {name: float(results[name][key]) for name in followed if name in results}
    return figures


def summarize(times: Times, calculations: int) -> dict[str, Any]:
    """Return median times of a calculation, and ratios."""
    figures: dict[str, Any] = {}
    for end, ratio, of_processors in (
        ("s", "ratio", False),
        ("processor_s", "processor_ratio", True),
    ):
        medians = find_medians(times, of_processors=of_processors)
        seconds = {name: median / calculations for name, median in medians.items()}
        figures[end] = seconds
        figures[ratio] = divide(seconds.get("peer"), seconds["ours"])
    return figures


def count_operators(side: Side) -> int:
    """Count the operators of one calculation: a step that knows the forces of its start."""
    side.ask("seconds", "step")
    n_operators: int = side.ask("operators", "step")
    return n_operators


def find_deviation(forces: Mapping[str, np.ndarray], expected: np.ndarray) -> float:
    """Return how far forces are from the peer's, relative to the largest."""
    largest = float(max(abs(one - expected).max() for one in forces.values()) / abs(expected).max())
    if not largest < TOLERANCE:
        raise RuntimeError(f"the two sides do not compute the same: {largest}")
    return largest
