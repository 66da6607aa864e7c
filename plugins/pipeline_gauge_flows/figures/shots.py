"""Effective sample size with noise shots of pseudofermions."""

from collections.abc import Iterator

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.runs import EvaluatedRun, Report
from pipeline_gauge_flows.options import GaugeTrainOptions

_KINDS = {"flow": ("o-", "flow of pseudofermions"), "identity": ("s--", "none")}
"""Marker, line and label, with and without a flow of pseudofermions."""


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw ESS against the number of noise shots, with and without a flow of pseudofermions."""
    trained = list(_list_trained(experiment))
    if not trained:
        return None
    figure, ((axes,),) = style.make_canvas(height=2.6)
    table: Rows = [["variant", "lattice", "by", "shots", "ess", "error"]]
    counts: set[int] = set()
    for one in trained:
        name = f"{one.run.label}: " if len(trained) > 1 else ""
        entries = one.first["pseudofermions"]["by_shots"]
        shots = [entry["shots"] for entry in entries]
        counts |= set(shots)
        for kind, (line, label) in _KINDS.items():
            values, errors = (
                [entry[kind][key] or 0.0 for entry in entries] for key in ("value", "error")
            )
            colour = one.colour if kind == "flow" else style.FAINT
            axes.errorbar(
                shots, values, errors, fmt=line, color=colour, capsize=2, label=f"{name}{label}"
            )
        exact = one.first["ess"]["value"]
        axes.axhline(exact, color=one.colour, linewidth=0.8, label=f"{name}exact determinants")
        for report in one.flow["lattices"]:
            table += _list_rows(one, report)
    style.set_rank_axis(axes, counts, "noise shots of a configuration")
    axes.set_ylabel("effective sample size")
    style.add_legend_above(figure, axes)
    return figure, table


def _list_trained(experiment: ExperimentRun) -> Iterator[EvaluatedRun]:
    """Yield the runs whose flow of pseudofermions was trained."""
    for one in runs.list_evaluated(experiment):
        train = one.run.get_section("train", GaugeTrainOptions)
        if train.objective == "pseudofermions" and "pseudofermions" in one.first:
            yield one


def _list_rows(one: EvaluatedRun, report: Report) -> Rows:
    """Return the rows of the table of one lattice."""
    lattice = runs.format_extents(report)
    return [
        [one.run.variant, lattice, kind, entry["shots"], *entry[kind].values()]
        for entry in report["pseudofermions"]["by_shots"]
        for kind in _KINDS
    ]
