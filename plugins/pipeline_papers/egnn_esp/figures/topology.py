"""Figure 6, topology: pairs of parts that exchange atoms, and the number of atoms."""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.egnn_esp.figures import pictures
from pipeline_papers.egnn_esp.figures.results import NAMES, read_domains

Floats = NDArray[np.float64]
Traffic = NDArray[np.int64]

_STEPS: Final = 400
_WIDEST: Final = 1.6
"""Width of the line of the most traffic, points."""
_FEW_LINES: Final = 60
"""Number above which lines fade as more are drawn, so that those of most traffic stay visible."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the graph of the parts, and the matrix of their traffic, for each method."""
    content = read_domains(experiment)
    if content is None:
        return None
    n = len(content.traffic)
    figure, rows = style.make_canvas(2, n, width=style.PAGE, height=style.PAGE / n)
    figure.set_dpi(pictures.RASTER_DPI)
    most = max(traffic.max() for traffic in content.traffic.values())
    table: Rows = [["method", "to", "from", "atoms"]]
    image: Any = None
    for upper, lower, (method, traffic) in zip(*rows, content.traffic.items(), strict=True):
        _draw_graph(upper, traffic, int(most))
        upper.set_title(NAMES[method])
        shown = np.ma.masked_equal(traffic, 0)
        image = lower.imshow(shown, norm=LogNorm(1, most), cmap="viridis", interpolation="nearest")
        lower.set_xlabel("from part")
        ends = np.argwhere(traffic).tolist()
        table += [[method, to, sender, int(traffic[to, sender])] for to, sender in ends]
    rows[1][0].set_ylabel("to part")
    for lower in rows[1][1:]:
        lower.set_yticklabels([])
    figure.colorbar(image, ax=rows[1], label="atoms", shrink=0.8, pad=0.02)
    return figure, table


def _draw_graph(axes: Axes, traffic: Traffic, most: int) -> None:
    places = lay_out_parts(traffic)
    both = traffic + traffic.T
    i, j = np.nonzero(np.triu(both))
    share = both[i, j] / (2 * most)
    ink = 0.7 * min(1.0, (_FEW_LINES / max(1, len(share))) ** 0.5)
    lines = LineCollection(
        list(np.stack([places[i], places[j]], axis=1)),
        linewidths=0.15 + _WIDEST * share,
        colors=[(0.1, 0.1, 0.1, ink * (0.15 + 0.85 * one)) for one in share],
        rasterized=True,
    )
    axes.add_collection(lines)
    colours = pictures.make_part_colours(len(traffic))
    x, y = places.T
    size = 300 / len(traffic) + 5
    axes.scatter(x, y, s=size, c=colours, linewidths=0.3, edgecolors="white", zorder=2)
    reach = 1.08 * np.abs(places).max()
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.set_axis_off()


def lay_out_parts(traffic: Traffic) -> Floats:
    """Return places of parts, (n_parts, 2), from springs with the strength of traffic.

    Force-directed placement with repulsion of T. Fruchterman and E. Reingold, Softw. Pract. Exp.
    21, 1129 (1991), started from a circle of parts in the order of their numbers, so that it is
    reproducible.
    """
    n = len(traffic)
    weights = (traffic + traffic.T) / max(1, (traffic + traffic.T).max())
    angles = 2 * np.pi * np.arange(n) / n
    # On a perfect circle, opposite forces would preserve the symmetry.
    places = np.stack([np.cos(angles), 0.9 * np.sin(angles)], axis=1)
    length = np.sqrt(4 / n)
    for step in range(_STEPS):
        apart = places[:, None] - places[None]
        distance = np.maximum(np.linalg.norm(apart, axis=2), 1e-3)
        push = length**2 / distance - weights * distance**2 / length
        np.fill_diagonal(push, 0.0)
        force = (apart * (push / distance)[:, :, None]).sum(axis=1)
        size = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
        hottest = 0.1 * (1 - step / _STEPS) + 1e-3
        places += force / size * np.minimum(size, hottest)
    centred: Floats = places - (places.max(axis=0) + places.min(axis=0)) / 2
    return centred
