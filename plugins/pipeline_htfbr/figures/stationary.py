"""Minima and saddle points of the fits beside those of the exact surface, as a table."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from pipeline_core.figures import Drawn, tabulate
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures import uses
from pipeline_htfbr.figures.uses import Floats, Stationary

_KINDS: Final = {0: "minimum", 1: "saddle point"}


def draw(experiment: ExperimentRun) -> Drawn:
    """Tabulate the stationary points of all variants that have any."""
    table = tabulate(
        {"variant": run.variant, **row}
        for run in experiment.runs.values()
        for row in _list_rows(*uses.read_stationary_points(run))
    )
    return (None, table) if table else None


def _list_rows(
    fitted: Stationary, exact: Stationary | None, pairs: list[tuple[int, int]]
) -> Iterator[dict[str, object]]:
    """Yield corresponding points, then points that only one surface has."""
    n_exact = 0 if exact is None else len(exact.order)
    ours, theirs = ({pair[side] for pair in pairs} for side in (0, 1))
    yield from (_make_row(fitted, i, exact, j) for i, j in pairs)
    yield from (_make_row(fitted, i, None, 0) for i in range(len(fitted.order)) if i not in ours)
    yield from (_make_row(None, 0, exact, j) for j in range(n_exact) if j not in theirs)


def _make_row(
    fitted: Stationary | None, i: int, exact: Stationary | None, j: int
) -> dict[str, object]:
    ours, frequencies = _get_point(fitted, i)
    theirs, expected = _get_point(exact, j)
    order = fitted.order[i] if fitted is not None else exact.order[j] if exact is not None else 0
    largest = None
    if frequencies is not None and expected is not None:
        largest = float(np.abs(frequencies - expected).max())
    return {
        "kind": _KINDS[int(order)],
        "fitted_cm-1": ours,
        "exact_cm-1": theirs,
        "difference_cm-1": None if ours is None or theirs is None else ours - theirs,
        "largest_frequency_difference_cm-1": largest,
        "fitted_frequencies_cm-1": _format_frequencies(frequencies),
        "exact_frequencies_cm-1": _format_frequencies(expected),
    }


def _get_point(points: Stationary | None, number: int) -> tuple[float | None, Floats | None]:
    """Return energy and frequencies of a point; None for unknown ones."""
    if points is None:
        return None, None
    energy = float(points.energy[number])
    frequencies = None if points.frequencies is None else points.frequencies[number]
    if frequencies is not None and not np.isfinite(frequencies).all():
        frequencies = None
    return energy if np.isfinite(energy) else None, frequencies


def _format_frequencies(frequencies: Floats | None) -> str:
    if frequencies is None:
        return ""
    return ", ".join(f"{abs(one):.0f}{'i' if one < 0 else ''}" for one in frequencies)
