"""Energies of the points, and errors of the fits in energy windows."""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes

from pipeline_core import units
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.fields import SPLITS
from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_htfbr.figures.fits import Fit, drop_shared, read_fits

_PLACES: Final = {"test": "test points", "grid": "whole grid", "off_grid": "off the grid"}
_BINS: Final = 50


def draw_windows(experiment: ExperimentRun) -> Drawn:
    """Draw the RMSE of each energy window, one colour per variant."""
    fits = drop_shared(read_fits(experiment))
    places = [p for p in _PLACES if any(p in fit.surface["errors"] for fit in fits)]
    if not places:
        return None
    width = style.PAGE if len(places) > 1 else style.COLUMN
    figure, (panels,) = style.make_canvas(1, len(places), width=width, sharey=True)
    table: Rows = [
        ["variant", "place", "from_cm-1", "to_cm-1", "points", "RMSE_cm-1", "MAE_cm-1", "max_cm-1"]
    ]
    for axes, place in zip(panels, places, strict=True):
        _draw_panel(axes, place, fits)
        for fit in fits:
            table += [
                [fit.run.variant, place, *(w[key] for key in _WINDOW)]
                for w in fit.list_windows(place)
            ]
    panels[0].set_ylabel("RMSE (cm⁻¹)")
    style.add_legend_above(figure, panels[0])
    return figure, table


_WINDOW: Final = ("from", "to", "n_points", "rmse", "mae", "max_error")


def _draw_panel(axes: Axes, place: str, fits: list[Fit]) -> None:
    filled: dict[tuple[float, float | None], int] = {}
    for fit in fits:
        for window in fit.list_windows(place):
            if window["n_points"]:
                filled[window["from"], window["to"]] = window["n_points"]
    windows = sorted(filled, key=lambda ends: ends[0])
    for number, fit in enumerate(fits):
        errors = {(w["from"], w["to"]): w["rmse"] for w in fit.list_windows(place)}
        drawn = [(i, errors[w]) for i, w in enumerate(windows) if errors.get(w)]
        x, y = [i for i, _ in drawn], [error for _, error in drawn]
        axes.plot(x, y, "o-", color=style.choose_colour(number), label=fit.run.variant)
    axes.set(yscale="log", xlim=(-0.4, len(windows) - 0.6), title=_PLACES[place])
    style.set_log_ticks(axes.yaxis)
    axes.set_xticks(range(len(windows)), [f"{_format_range(*w)}\n{filled[w]:,}" for w in windows])
    axes.tick_params(axis="x", length=0, labelsize=5.5)
    axes.set_xlabel("energy (10³ cm⁻¹), points")


def _format_range(start: float, end: float | None) -> str:
    return f"> {start / 1000:g}" if end is None else f"{start / 1000:g}–{end / 1000:g}"


def draw_points(experiment: ExperimentRun) -> Drawn:
    """Draw the distribution of the energies of each split that was predicted."""
    shown = experiment.extract("points", lambda: _count_points(experiment))
    if shown is None:
        return None
    edges = np.linspace(0.0, shown["top"], _BINS + 1)
    figure, ((axes,),) = style.make_canvas(height=2.4)
    table: Rows = [["split", "from_cm-1", "to_cm-1", "points"]]
    for split, counts in shown["splits"].items():
        n_points = int(counts.sum())
        colour, label = style.choose_colour(SPLITS.index(split)), f"{split} ({n_points:,} points)"
        axes.stairs(counts / n_points, edges, color=colour, label=label, linewidth=1.2)
        ends = (1000 * edges).tolist()
        bars = zip(ends[:-1], ends[1:], counts.tolist(), strict=True)
        table += [[split, *bar] for bar in bars]
    axes.set(xlabel="energy above the lowest point (10³ cm⁻¹)", ylabel="fraction of points")
    axes.set_xlim(0, float(edges[-1]))
    style.add_legend_with_room(axes)
    return figure, table


def _count_points(experiment: ExperimentRun) -> dict[str, Any] | None:
    """Return the highest energy, 10³ cm⁻¹, and points by energy of each split; None without any."""
    run = next((r for r in experiment.runs.values() if r.predictions.exists()), None)
    if run is None:
        return None
    with SampleFile(run.predictions, "predictions") as file:
        if "energy_label" not in file.fields:
            return None
        codes = file.read_column("split")
        energy = file.read_column("energy_label") / units.find_factor("energy", "cm^-1")
    height = (energy - energy.min()) / 1000
    top = float(height.max()) or 1.0
    edges = np.linspace(0.0, top, _BINS + 1)
    splits = {
        split: np.histogram(height[codes == code], edges)[0]
        for code, split in enumerate(SPLITS)
        if (codes == code).any()
    }
    return {"top": top, "splits": splits}
