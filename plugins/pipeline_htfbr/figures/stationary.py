"""Minima and saddle points of the fits beside those of the exact surface, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from pipeline_core.figures import Drawn, Rows, tables
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures import uses
from pipeline_htfbr.figures.uses import Floats, Stationary

_KINDS: Final = {0: "minimum", 1: "saddle point"}
_MOST: Final = 8
"""Most points of a variant in the picture; the table has all."""
_COLUMNS: Final = (
    "variant",
    "kind",
    "fitted_cm-1",
    "exact_cm-1",
    "difference_cm-1",
    "largest_frequency_difference_cm-1",
    "fitted_frequencies_cm-1",
    "exact_frequencies_cm-1",
)


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the stationary points of all variants that have any."""
    table: Rows = [list(_COLUMNS)]
    cells = []
    for run in experiment.runs.values():
        rows = list(_list_rows(*uses.read_stationary_points(run)))
        table += [[run.variant, *row] for row in rows]
        cells += [_format_row(run.variant, row) for row in rows[:_MOST]]
    if not cells:
        return None
    header = ["fit", "kind", "energy", "exact", "diff.", "fitted frequencies, cm⁻¹", "max. diff."]
    widths = [0.12, 0.13, 0.09, 0.09, 0.08, 0.38, 0.11]
    return tables.draw(header, cells, widths), table


def _list_rows(
    fitted: Stationary, exact: Stationary | None, pairs: list[tuple[int, int]]
) -> Iterator[list[Any]]:
    """Yield corresponding points, then points that only one surface has."""
    for i, j in pairs:
        assert exact is not None
        yield _make_row(fitted, i, exact, j)
    for i in range(len(fitted.order)):
        if i not in {a for a, _ in pairs}:
            yield _make_row(fitted, i, None, 0)
    if exact is not None:
        for j in range(len(exact.order)):
            if j not in {b for _, b in pairs}:
                yield _make_row(None, 0, exact, j)


def _make_row(fitted: Stationary | None, i: int, exact: Stationary | None, j: int) -> list[Any]:
    ours = _replace_non_finite(fitted.energy[i]) if fitted else None
    theirs = _replace_non_finite(exact.energy[j]) if exact else None
    frequencies = _find_frequencies(fitted, i)
    expected = _find_frequencies(exact, j)
    present = [one for one in ((fitted, i), (exact, j)) if one[0] is not None]
    kind = _KINDS[int(present[0][0].order[present[0][1]])]  # type: ignore[union-attr]
    difference = None if ours is None or theirs is None else ours - theirs
    largest = None
    if frequencies is not None and expected is not None:
        largest = float(np.abs(frequencies - expected).max())
    return [
        kind,
        ours,
        theirs,
        difference,
        largest,
        _format_frequencies(frequencies),
        _format_frequencies(expected),
    ]


def _replace_non_finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _find_frequencies(points: Stationary | None, number: int) -> Floats | None:
    if points is None or points.frequencies is None:
        return None
    frequencies: Floats = points.frequencies[number]
    return frequencies if np.isfinite(frequencies).all() else None


def _format_frequencies(frequencies: Floats | None) -> str:
    if frequencies is None:
        return ""
    return ", ".join(f"{abs(one):.0f}{'i' if one < 0 else ''}" for one in frequencies)


def _format_row(variant: str, row: list[Any]) -> list[str]:
    kind, *energies, largest, fitted, _ = row
    return [variant, kind, *map(_format_decimal, energies), fitted or "–", _format_decimal(largest)]


def _format_decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}".replace("-", "−")
