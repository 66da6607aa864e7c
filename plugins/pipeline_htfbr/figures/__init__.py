"""The figures of HT-FBR: the paper's beside ours, and what a fitted surface is worth."""

from __future__ import annotations

from functools import partial
from typing import Final

from pipeline_core.figures import Figure, parity
from pipeline_htfbr.figures import comparison, cuts, energies, stationary, training

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
        draw=comparison.draw_fits,
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
    Figure(
        name="table2",
        title="Table 2: fits of HONO",
        caption="The paper's rows and ours. Losses are root-mean-square errors in hartree: the "
        "paper does not define its loss, and this reading is inferred from the size of the "
        "numbers. Grid: all 1,000,000 points of Table 1. The time is that of the epochs listed, "
        "iterations for the solver.",
        category="Reproduction",
        draw=comparison.draw_table2,
    ),
    Figure(
        name="table3",
        title="Table 3: gap between training and test",
        caption="The sum over equal shares of a batch of their gradients is the gradient of the "
        "batch, whatever the number of shares, so more devices alone cannot change what a "
        "full-batch training finds. Ours cut one batch into as many shares; the last column is "
        "the largest relative difference of the training loss from that with one share, over all "
        "records.",
        category="Reproduction",
        draw=comparison.draw_table3,
    ),
    Figure(
        name="table4",
        title="Table 4: fits of ethene",
        caption="The paper's rows and ours, which fit other data: GFN2-xTB energies along "
        "classical trajectories in place of the paper's unpublished points, so losses compare in "
        "their order of magnitude at most. Losses are root-mean-square errors in hartree, as in "
        "Table 2.",
        category="Reproduction",
        draw=comparison.draw_table4,
    ),
    Figure(
        name="figure3",
        title="Figure 3: time of a training on HONO",
        caption="The paper's times for 100,000 epochs, and 100,000 times the measured time of an "
        "epoch here: resident keeps the points in memory and has the analytic gradient of the "
        "tree, dataloader is torch's Dataset and DataLoader with autograd.",
        category="Reproduction",
        draw=training.draw_time,
    ),
    Figure(
        name="figure4",
        title="Figure 4: losses on ethene",
        caption="Mean squared error in units of the variance of the training energies. The same "
        "steps by two implementations.",
        category="Reproduction",
        draw=training.draw_curves,
    ),
]

__all__ = ["FIGURES"]
