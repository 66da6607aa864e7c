"""Figure 1 of the paper: growth of the effective sample size, with and without learned loops."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline_core.figures import Drawn, Rows, style
from pipeline_core.figures.expected import read_paper
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.curves import Floats, count_steps_per_epoch, read_curve
from pipeline_gauge_flows.figures.runs import Group
from pipeline_gauge_flows.options import GaugeOptions

_PAPERS: Final = {"learned": "ess_learned", "plaquette": "ess_plaquette"}
"""Ids of the paper's effective sample sizes."""
_PAPERS_LATTICE: Final = ([4, 4, 4, 4], 3)
_PAPERS_ACTION: Final = ActionOptions(beta=2.0)
_WIDTHS: Final = (3.0, 1.0, 3.0, 1.0)


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw curves and final values, a row for each theory."""
    by_theory: dict[str, list[Group]] = {}
    for group in runs.group_runs(experiment):
        if any(read_curve(run) is not None for run in group.runs):
            by_theory.setdefault(runs.identify_theory(group.runs[0]), []).append(group)
    if not by_theory:
        return None
    figure, panels = style.make_canvas(
        len(by_theory), 4, width=style.PAGE, height=2.3, width_ratios=_WIDTHS
    )
    table: Rows = [["variant", "group", "seed", "steps", "split", "ess", "ess_error", "kl"]]
    table[0].append("kl_error")
    for row, groups in zip(panels, by_theory.values(), strict=True):
        _draw_row(row, groups)
        _draw_paper(row[0], experiment, groups)
        _scale_sizes(row[0], row[1])
        for group in groups:
            table += _make_table(group)
    panels[-1][0].set_xlabel(_choose_unit(experiment))
    panels[-1][2].set_xlabel(_choose_unit(experiment))
    labels = [row[0].get_legend_handles_labels() for row in panels]
    handles = {name: handle for groups in labels for handle, name in zip(*groups, strict=True)}
    if len(handles) > 1:
        figure.legend(handles=list(handles.values()), loc="outside upper left", ncols=4)
    return figure, table


def _choose_unit(experiment: ExperimentRun) -> str:
    has_steps = all(count_steps_per_epoch(run) is not None for run in experiment.runs.values())
    return "optimizer step" if has_steps else "epoch"


def _draw_row(row: Sequence[Axes], groups: Sequence[Group]) -> None:
    """Draw one theory: effective sample sizes and their ends, divergences and their ends."""
    flows = [flow for group in groups for run in group.runs if (flow := runs.read_flow(run))]
    log_z = None if not flows else flows[0]["lattices"][0]["log_z"]
    constant = None if log_z is None else (log_z["known"] or log_z["estimate"])["value"]
    for group in groups:
        curves = [one for run in group.repeats if (one := read_curve(run)) is not None]
        _draw_lines(row[0], group, [(c.steps, c.ess) for c in curves])
        if constant is not None:
            kl = [(c.steps, constant + c.loss) for c in curves if c.loss is not None]
            _draw_lines(row[2], group, kl)
    _draw_ends(row[1], groups, lambda first: first["ess"])
    _draw_ends(row[3], groups, lambda first: first["kl"]["reverse"])
    row[0].set(
        ylabel="effective sample size", title=runs.describe_theory(flows[0]) if flows else ""
    )
    _scale_divergences(row[2], row[3], log_z)


def _scale_sizes(curves: Axes, ends: Axes) -> None:
    """Set a common axis for both panels of effective sample sizes, from zero."""
    top = max(axes.get_ylim()[1] for axes in (curves, ends) if axes.has_data())
    for axes in (curves, ends):
        axes.set_ylim(0, top)
    ends.tick_params(labelleft=False)


def _scale_divergences(curves: Axes, ends: Axes, log_z: Mapping[str, Any] | None) -> None:
    """Set a common logarithmic axis for both panels of KL(q, p)."""
    is_exact = log_z is not None and log_z["known"] is not None
    curves.set(ylabel="KL(q, p)", title=f"by the {'known' if is_exact else 'estimated'} log Z")
    if not curves.lines and not ends.lines:
        for axes in (curves, ends):
            axes.set_axis_off()
            axes.set_title("")
        return
    for axes in (curves, ends):
        axes.set_yscale("log")
    limits = [axes.get_ylim() for axes in (curves, ends) if axes.lines]
    for axes in (curves, ends):
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        style.set_log_ticks(axes.yaxis)
    ends.tick_params(labelleft=False)


def _draw_lines(axes: Axes, group: Group, curves: Sequence[tuple[Floats, Floats]]) -> None:
    """Draw the curve of each seed thin, and their mean thick."""
    if not curves:
        return
    many = len(curves) > 1
    for x, y in curves:
        look: dict[str, Any] = {"linewidth": 0.6, "alpha": 0.6} if many else {"label": group.name}
        marker = "o" if len(x) < 2 else ""
        axes.plot(x, np.where(y > 0, y, np.nan), marker=marker, color=group.colour, **look)
    if many:
        n = min(len(x) for x, _ in curves)
        mean = np.mean([y[:n] for _, y in curves], axis=0)
        label = f"{group.name}, {len(curves)} seeds"
        shown = np.where(mean > 0, mean, np.nan)
        axes.plot(curves[0][0][:n], shown, color=group.colour, linewidth=1.8, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_ends(
    axes: Axes, groups: Sequence[Group], of: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> None:
    """Draw the value of each evaluated run with its error."""
    for number, group in enumerate(groups):
        for run, first in _list_evaluated(group):
            one = of(first)
            place = number + 0.12 * (group.repeats.index(run) - (len(group.repeats) - 1) / 2)
            error = one["error"] or 0.0
            axes.errorbar(place, one["value"], error, fmt="o", color=group.colour, capsize=2)
    axes.set_xticks([])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_title("at the end")


def _list_evaluated(group: Group) -> Iterator[tuple[Run, Mapping[str, Any]]]:
    for run in group.repeats:
        flow = runs.read_flow(run)
        if flow is not None:
            yield run, flow["lattices"][0]


def _draw_paper(axes: Axes, experiment: ExperimentRun, groups: Sequence[Group]) -> None:
    """Draw the paper's effective sample sizes where the theory is the paper's."""
    flows = [flow for group in groups for run in group.runs if (flow := runs.read_flow(run))]
    if not flows or not all(map(_match_paper, flows)):
        return
    published = read_paper(experiment)
    for group in groups:
        options = group.runs[0].get_section("model", GaugeOptions)
        entry = published.get(_PAPERS[options.layers.loops])
        if entry is not None:
            look: dict[str, Any] = {"color": group.colour, "linestyle": ":", "linewidth": 0.9}
            axes.axhline(entry.value / 100, label=f"{group.name}, the paper", **look)


def _match_paper(flow: Mapping[str, Any]) -> bool:
    """Return True for a flow from the Haar measure to the theory of the paper's figure 1."""
    first = flow["lattices"][0]
    same_lattice = (first["extents"], first["n_colours"]) == _PAPERS_LATTICE
    same_action = ActionOptions.model_validate(flow["action"]) == _PAPERS_ACTION
    return flow["prior"] == "haar" and same_lattice and same_action


def _make_table(group: Group) -> Rows:
    """Return the curves of a group, each with a last row of its evaluation."""
    table: Rows = []
    ends = {run.variant: first for run, first in _list_evaluated(group)}
    for run in group.repeats:
        curve, end = read_curve(run), ends.get(run.variant)
        if curve is None:
            continue
        log_z = None if end is None else end["log_z"]["known"] or end["log_z"]["estimate"]
        about: list[object] = [run.variant, group.name, run.seed]
        for n, (steps, ess) in enumerate(zip(curve.steps, curve.ess, strict=True)):
            loss = None if curve.loss is None or log_z is None else curve.loss[n] + log_z["value"]
            kl = None if loss is None else float(loss)
            table.append([*about, int(steps), curve.split, float(ess), None, kl, None])
        if end is not None:
            values = [x for one in (end["ess"], end["kl"]["reverse"]) for x in one.values()]
            table.append([*about, int(curve.steps[-1]), "evaluated", *values])
    return table
