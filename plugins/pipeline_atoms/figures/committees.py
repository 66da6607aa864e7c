"""Uncertainty of a committee: calibration of its intervals."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pipeline_atoms.ensembles.calibration import Calibration
from pipeline_atoms.ensembles.predictions import read_joint
from pipeline_core.figures import Drawn, Rows, predictions, results, style
from pipeline_core.figures.findings import Number
from pipeline_core.figures.predictions import Comparison
from pipeline_core.figures.quantities import Quantity, find_quantity
from pipeline_core.figures.results import Errors
from pipeline_core.project.run import ExperimentRun, Run

Floats = NDArray[np.float64]

_ORDER: Final = ("test", "val")
"""Splits by preference; the first with a committee's errors is shown."""


def read_committee(run: Run) -> dict[str, Any] | None:
    """Return the metrics of a calibrated committee from those of its first run, else None."""
    content = results.read_json(run.metrics) if run.members else None
    return content.get("committee") if isinstance(content, dict) else None


def _find_split(committee: dict[str, Any]) -> str | None:
    return next((split for split in _ORDER if committee["splits"].get(split)), None)


def compare(run: Run) -> list[Comparison] | None:
    """Return labels, means and half widths of a committee on its held-out split.

    None for a run that is not the first of a calibrated committee; empty without a held-out split.
    """
    committee = read_committee(run)
    if committee is None:
        return None
    split = _find_split(committee)
    if split is None:
        return []
    compared = []
    single = results.read_metrics(run)
    for name, joint in read_joint([run, *run.members], split).items():
        if name not in committee["splits"][split]:
            continue
        facts, kind = committee["splits"][split][name], find_quantity(name)
        calibration = Calibration.model_validate(committee["calibration"][name])
        spread = ((joint.label - joint.label.mean()) ** 2).sum()
        errors = Errors(
            unit=facts["unit"],
            count=facts["count"],
            mae=facts["mae"],
            rmse=facts["rmse"],
            r2=float(1 - facts["count"] * facts["rmse"] ** 2 / spread) if spread else None,
            label_mean_absolute=float(np.abs(joint.label).mean()),
        )
        half = calibration.compute_half_widths(joint.spread) * kind.factor
        one = Comparison(kind, split, joint.label * kind.factor, joint.mean * kind.factor, errors)
        compared.append(replace(one, half_width=half))
    names = {one.quantity.name for one in compared}
    assert single is not None
    return compared + [c for c in predictions.read_comparisons(run) if c.quantity.name not in names]


def draw_reliability(experiment: ExperimentRun) -> Drawn:
    """Draw coverage against probability, and needed half widths against predicted ones."""
    shown = list(_list_quantities(experiment))
    if not shown:
        return None
    figure, axes = style.make_canvas(len(shown), 2, width=style.PAGE, height=2.6)
    table: Rows = [["variant", "split", "quantity", "probability", "calibrated", "uncalibrated"]]
    several = len({variant for variant, *_ in shown}) > 1
    for (left, right), (variant, split, kind, facts) in zip(axes, shown, strict=True):
        table += _draw_coverage(left, [variant, split, kind.name], facts)
        title = f"{variant}: {kind.title}" if several else kind.title
        left.set_title(f"{title}, {split} split, {facts['count']:,} numbers")
        _draw_widths(right, kind, facts)
    style.add_legend_above(figure, axes[0][0])
    return figure, table


def _list_quantities(
    experiment: ExperimentRun,
) -> Iterator[tuple[str, str, Quantity, dict[str, Any]]]:
    committees = {v: read_committee(run) for v, run in experiment.runs.items()}
    for variant, committee in committees.items():
        split = _find_split(committee) if committee else None
        for name, facts in committee["splits"][split].items() if committee and split else ():
            yield variant, split or "", find_quantity(name), facts


def _draw_coverage(axes: Axes, names: list[object], facts: dict[str, Any]) -> Rows:
    levels = [float(level) for level in facts["reliability"]]
    shares = {
        kind: [one[kind] for one in facts["reliability"].values()]
        for kind in ("calibrated", "uncalibrated")
    }
    axes.plot([0, 1], [0, 1], color=style.FAINT, linewidth=0.6, zorder=0)
    axes.plot(levels, shares["calibrated"], "o-", markersize=3, label="calibrated intervals")
    axes.plot(levels, shares["uncalibrated"], "s--", markersize=3, label="spread of the members")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="probability of the interval", ylabel="labels within")
    return [
        [*names, *row]
        for row in zip(levels, shares["calibrated"], shares["uncalibrated"], strict=True)
    ]


def _draw_widths(axes: Axes, kind: Quantity, facts: dict[str, Any]) -> None:
    if not facts["bins"]:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "too few numbers", ha="center", transform=axes.transAxes)
        return
    half, needed = (
        np.array([one[key] for one in facts["bins"]]) * kind.error_factor
        for key in ("half_width", "needed")
    )
    low, high = min(half.min(), needed.min()), max(half.max(), needed.max())
    limits = low / 1.2, high * 1.2
    axes.plot(limits, limits, color=style.FAINT, linewidth=0.6, zorder=0)
    axes.plot(half, needed, "o-", markersize=3)
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        style.set_log_ticks(axis)
    axes.set_xlabel(f"half width of 95 % ({kind.error_unit})")
    axes.set_ylabel(f"95 % of errors below ({kind.error_unit})")


def collect_numbers(run: Run) -> Iterator[Number]:
    """Yield the coverage of held-out labels by the intervals of a committee."""
    committee = read_committee(run)
    split = _find_split(committee) if committee else None
    if committee is None or split is None:
        return
    for name, facts in committee["splits"][split].items():
        kind = find_quantity(name)
        half = facts["mean_half_width"] * kind.error_factor
        yield Number(
            title=f"{kind.title.capitalize()} within 95 % intervals",
            value=f"{100 * facts['coverage']:.1f} %",
            note=f"of {facts['count']:,} numbers; committee of {len(committee['members'])}, "
            f"mean half width {half:.3g} {kind.error_unit}",
        )
