"""Figure 5, a and b: the domains of the parts."""

import numpy as np

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.egnn_esp.figures import pictures
from pipeline_papers.egnn_esp.figures.results import NAMES, read_domains

_DIAMETER = 2.4
"""Diameter of an atom, Å."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the atoms next to the faces of the box, coloured by part, for each method."""
    content = read_domains(experiment)
    if content is None:
        return None
    n_panels = len(content.labels)
    figure, panels = style.make_grid(n_panels, height=2.2, most_columns=2, width=style.PAGE)
    figure.set_dpi(pictures.RASTER_DPI)
    palette = np.asarray(pictures.make_part_colours(content.parts))
    table: Rows = [["method", "part", "atoms", "neighbours", "received"]]
    for axes, (method, labels) in zip(panels, content.labels.items(), strict=True):
        pictures.draw_atoms(axes, content.positions, palette[labels], _DIAMETER)
        pictures.draw_box(axes, content.cell)
        neighbours = np.count_nonzero(content.traffic[method], axis=1)
        axes.set_title(f"{NAMES[method]}: {neighbours.mean():.1f} neighbours a part")
        counts = (content.atoms[method], neighbours, content.traffic[method].sum(1))
        rows_of_method = zip(range(content.parts), *counts, strict=True)
        table += [[method, *map(int, row)] for row in rows_of_method]
    return figure, table
