"""Figure 9 of the paper: training losses of the baseline, with algorithm 1, and ours."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.project.run import ExperimentRun
from pipeline_papers.mace.figures.configurations import (
    BASELINE,
    BOTH,
    OURS,
    Configuration,
    list_trained,
)

Losses = dict[int, NDArray[np.float64]]
"""Seed -> loss of each epoch."""

_LINES: Final = {BASELINE: "-", BOTH: "--", OURS: ":"}
_NAMES: Final = {
    BASELINE: "baseline",
    BOTH: "algorithm 1, fused kernels",
    OURS: "ours, fused kernels",
}


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw the losses together, and their differences from the baseline of the same seed."""
    by_configuration = _read_losses(experiment)
    if not by_configuration[BASELINE] or not by_configuration[BOTH]:
        return None
    differences = {
        configuration: apart
        for configuration in (BOTH, OURS)
        if (apart := _compute_differences(by_configuration, configuration))
    }
    figure, (row,) = style.make_canvas(1, 2 if differences else 1, width=style.PAGE, height=2.4)
    for configuration, losses in by_configuration.items():
        if losses:
            _draw_curves(row[0], configuration, losses)
    row[0].set(xlabel="epoch", ylabel="training loss", yscale="log")
    style.set_log_ticks(row[0].yaxis)
    row[0].legend(loc="upper right")
    if differences:
        _describe_differences(row[1], differences, by_configuration[BASELINE])
    for axes in row:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    table: Rows = [["configuration", "seed", "epoch", "train_loss"]]
    for configuration, losses in by_configuration.items():
        for seed, values in losses.items():
            table += [[configuration.name, seed, n, float(v)] for n, v in enumerate(values, 1)]
    return figure, table


def _read_losses(experiment: ExperimentRun) -> dict[Configuration, Losses]:
    """Return the losses of each seed, on the fewest ranks of both the baseline and `BOTH`."""
    runs = list_trained(experiment)
    ranks = [{one.ranks for one in runs if one.configuration == c} for c in (BASELINE, BOTH)]
    fewest = min(set.intersection(*ranks), default=0)
    by_configuration: dict[Configuration, Losses] = {c: {} for c in _LINES}
    for one in runs:
        if one.ranks == fewest and one.configuration in by_configuration:
            losses = [record["train"]["loss"] for record in results.read_history(one.run)]
            by_configuration[one.configuration].setdefault(one.run.seed, np.asarray(losses))
    return by_configuration


def _compute_differences(
    by_configuration: Mapping[Configuration, Losses], other: Configuration
) -> Losses:
    """Return |L − L₀| / L₀ of each seed common to the baseline and another configuration."""
    ours = by_configuration[other]
    return {
        seed: np.abs(ours[seed] - losses) / losses
        for seed, losses in by_configuration[BASELINE].items()
        if seed in ours and len(ours[seed]) == len(losses)
    }


def _draw_curves(axes: Axes, configuration: Configuration, losses: Losses) -> None:
    """Draw a band from the smallest to the largest of the seeds, and their mean."""
    n_epochs = min(len(values) for values in losses.values())
    table = np.stack([values[:n_epochs] for values in losses.values()])  # (n_seeds, n_epochs)
    epochs = np.arange(1, n_epochs + 1)
    many = f", {len(table)} seeds" if len(table) > 1 else ""
    name = _NAMES[configuration] + many
    if len(table) > 1:
        axes.fill_between(
            epochs, table.min(0), table.max(0), color=configuration.colour, alpha=0.18
        )
    marker = configuration.marker if n_epochs < 12 else ""
    axes.plot(
        epochs,
        table.mean(0),
        _LINES[configuration],
        color=configuration.colour,
        marker=marker,
        label=name,
    )


def _describe_differences(
    axes: Axes, differences: Mapping[Configuration, Losses], baseline: Losses
) -> None:
    """Compare the differences from the baseline with differences between seeds."""
    for configuration, losses in differences.items():
        for number, values in enumerate(losses.values()):
            epochs = np.arange(1, len(values) + 1)
            kept = values > 0  # equal losses have no place on a logarithmic axis
            look: dict[str, Any] = {
                "color": configuration.colour,
                "marker": configuration.marker,
                "markersize": 2,
            }
            label = f"{configuration.name}, each seed" if number == 0 else None
            axes.plot(epochs[kept], values[kept], _LINES[configuration], label=label, **look)
    if len(baseline) > 1:
        n_epochs = min(len(values) for values in baseline.values())
        table = np.stack([values[:n_epochs] for values in baseline.values()])
        spread = (table.max(0) - table.min(0)) / table.mean(0)
        epochs = np.arange(1, n_epochs + 1)
        axes.plot(epochs, spread, "--s", color=BASELINE.colour, label="baseline, among seeds")
    axes.set(xlabel="epoch", ylabel="relative difference of the loss", yscale="log")
    axes.legend(loc="best")
