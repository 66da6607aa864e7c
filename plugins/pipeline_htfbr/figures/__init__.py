"""Figures of fitted surfaces and their errors."""

from functools import partial
from typing import Final

from pipeline_core.figures import Figure, parity
from pipeline_htfbr.figures import cuts, energies, overview, stationary

FIGURES: Final = [
    Figure(
        name="dataset",
        title="Energies of the points",
        caption="Energies above the lowest one, in each split that was predicted.",
        category="Data",
        draw=energies.draw_points,
    ),
    Figure(
        name="parity",
        title="Predicted against exact energies",
        caption="Energies of the points of the held-out split. The line is perfect agreement; the "
        f"colour counts points per cell where there are more than {parity.MOST_POINTS}.",
        category="Accuracy",
        draw=partial(parity.draw_quantity, name="energy"),
    ),
    Figure(
        name="fits",
        title="All fits",
        caption="Root-mean-square errors in cm⁻¹ on the points and, where the exact surface is "
        "known, on its whole grid and at uniform random points off the grid; the largest error is "
        "that of the last set; the time is that of the fit alone.",
        category="Accuracy",
        draw=overview.draw,
    ),
    Figure(
        name="energy_windows",
        title="Errors by energy",
        caption="Root-mean-square error of the points in each window of energy above the minimum. "
        "What matters to spectra is the low end, what matters to a fit of the whole surface the "
        "high one, which holds most points.",
        category="Accuracy",
        draw=energies.draw_windows,
    ),
    Figure(
        name="cuts",
        title="Cuts",
        caption="The surface along single coordinates and pairs of them through its lowest point, "
        "the others held fixed; lines are fits, dots the exact surface.",
        category="Surface",
        draw=cuts.draw,
    ),
    Figure(
        name="stationary_points",
        title="Stationary points",
        caption="Minima and saddle points that were found on the fitted and on the exact surface, "
        "with their energies and harmonic frequencies.",
        category="Surface",
        draw=stationary.draw,
    ),
]
