"""Figure 8, a: elements of H against the distance of their atoms, and the errors of the same."""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_egnn_esp.figures.elements import Elements, read_elements

Floats = NDArray[np.float64]

_SMALLEST: Final = 1e-3
"""Magnitude below which elements are drawn on the lower edge, meV."""
_CELLS: Final = (160, 120)
_WIDTH: Final = 0.5
"""Width of the shells over which means are taken, Å."""
_LINES: Final[dict[str, dict[str, Any]]] = {
    "data": {"color": style.INK, "linestyle": ":", "label": "mean magnitude"},
    "distances alone": {
        "color": style.COLOURS[4],
        "linestyle": "--",
        "label": "mean error of distances alone",
    },
    "model": {"color": style.COLOURS[1], "linestyle": "-", "label": "mean error of the model"},
}


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the density of magnitudes over distance, of H and of the errors, with their means."""
    shown = experiment.extract("elements over distance", lambda: _count(read_elements(experiment)))
    if shown is None:
        return None
    figure, (row,) = style.make_canvas(1, 2, width=style.PAGE, height=2.7, sharey=True)
    figure.set_dpi(200)
    middles, means = shown["middles"], shown["means"]
    mesh: Any = None
    for axes, (title, counts) in zip(row, shown["counts"].items(), strict=True):
        mesh = _draw_density(axes, counts, shown["longest"], shown["top"])
        axes.set(title=title, xlabel="distance (Å)", yscale="log")
        axes.axvline(shown["cutoff"], color=style.INK, linestyle="--", linewidth=0.7)
    row[0].plot(middles, means["data"], **_LINES["data"])
    for name, look in _LINES.items():
        row[1].plot(middles, means[name], **look)
    style.add_legend_above(figure, row[1])
    row[0].set_ylabel("magnitude (meV)")
    figure.colorbar(mesh, ax=row[1], label="elements", pad=0.02)
    table: Rows = [["distance", "data", "model", "distances_alone", "unit"]]
    columns = (middles, means["data"], means["model"], means["distances alone"])
    table += [[*map(float, numbers), "meV"] for numbers in zip(*columns, strict=True)]
    return figure, table


def _count(held_out: Elements | None) -> dict[str, Any] | None:
    """Return counts by distance and magnitude, and means; None if there are no pairs."""
    if held_out is None or held_out.on_site.all():
        return None
    off = ~held_out.on_site
    top = float(2e3 * max(np.abs(held_out.label[off]).max(), 1e-6))
    longest = float(held_out.distance.max())
    magnitudes = {"data": np.abs(held_out.label), "errors of the model": held_out.error}
    middles, means = _compute_means(held_out)
    counts = {
        title: np.histogram2d(
            held_out.distance[off],
            np.clip(1e3 * values[off], _SMALLEST, top),
            _make_edges(longest, top),
        )[0].astype(np.int64)
        for title, values in magnitudes.items()
    }
    facts = {"cutoff": held_out.cutoff, "longest": longest, "top": top}
    return {**facts, "counts": counts, "middles": middles, "means": means}


def _make_edges(longest: float, top: float) -> list[Floats]:
    return [
        np.linspace(0, longest, _CELLS[0] + 1),
        np.geomspace(_SMALLEST, top, _CELLS[1] + 1),
    ]


def _draw_density(axes: Axes, counts: NDArray[np.int64], longest: float, top: float) -> QuadMesh:
    shown = np.ma.masked_equal(counts.T.astype(np.float64), 0)
    norm = LogNorm(1, max(10, counts.max()))
    edges = _make_edges(longest, top)
    return axes.pcolormesh(*edges, shown, norm=norm, cmap="viridis", rasterized=True)


def _compute_means(held_out: Elements) -> tuple[Floats, dict[str, Floats]]:
    """Return middles of shells and mean magnitudes, meV; a shell without elements is left out."""
    off = ~held_out.on_site
    shell = (held_out.distance[off] // _WIDTH).astype(int)
    counts = np.bincount(shell)
    filled = np.flatnonzero(counts)
    values = {
        "data": held_out.label,
        "model": held_out.predicted - held_out.label,
        "distances alone": held_out.two_centre - held_out.label,
    }
    means = {
        name: 1e3 * np.bincount(shell, np.abs(one[off]))[filled] / counts[filled]
        for name, one in values.items()
    }
    return (filled + 0.5).astype(np.float64) * _WIDTH, means
