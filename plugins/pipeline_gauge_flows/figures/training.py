"""Figure 1 of the paper: how the effective sample size grows, with and without learned loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pipeline_core.figures import Drawn, Rows, results, style
from pipeline_core.figures.expected import read_paper
from pipeline_core.run import ExperimentRun, Run
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.runs import Group
from pipeline_gauge_flows.objective import LARGEST_EXPONENT
from pipeline_gauge_flows.options import GaugeOptions, GaugeTrainOptions

Floats = NDArray[np.float64]

_PAPERS: Final = {"learned": "ess_learned", "plaquette": "ess_plaquette"}
"""Ids of the paper's effective sample sizes."""
_PAPERS_LATTICE: Final = ([4, 4, 4, 4], 3)
_PAPERS_ACTION: Final = {"name": "wilson", "beta": 2.0, "anisotropy": 0.0}
_TAIL: Final = 4.0
"""Standard deviations of log w within which all of it should be seen."""
_WIDTHS: Final = (3.0, 1.0, 3.0, 1.0)


@dataclass(frozen=True)
class Curve:
    """What the history of a training says of its flow, by epoch.

    Attributes:
        steps: Optimizer steps, or epochs where their steps are not known.
        ess: Effective sample size over the number of samples, NaN where it cannot be told.
        loss: KL(q, p) - log Z; None where another divergence was trained.
        split: "val" or "train".
    """

    steps: Floats
    ess: Floats
    loss: Floats | None
    split: str


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw curves and final values, a row for each theory."""
    by_theory: dict[str, list[Group]] = {}
    for group in runs.groups(experiment):
        if any(curve(run) is not None for run in group.runs):
            by_theory.setdefault(runs.theory(group.runs[0]), []).append(group)
    if not by_theory:
        return None
    figure, panels = style.make_canvas(
        len(by_theory), 4, width=style.PAGE, height=2.3, width_ratios=_WIDTHS
    )
    table: Rows = [["variant", "group", "seed", "steps", "split", "ess", "ess_error", "kl"]]
    table[0].append("kl_error")
    for row, found in zip(panels, by_theory.values(), strict=True):
        _row(row, found)
        _papers(row[0], experiment, found)
        for group in found:
            table += _table(group)
    panels[-1][0].set_xlabel(_unit(experiment))
    panels[-1][2].set_xlabel(_unit(experiment))
    labels = [row[0].get_legend_handles_labels() for row in panels]
    handles = {name: handle for found in labels for handle, name in zip(*found, strict=True)}
    if len(handles) > 1:
        figure.legend(handles=list(handles.values()), loc="outside upper left", ncols=4)
    return figure, table


def curve(run: Run) -> Curve | None:
    """Return the curve of a run; None if it was not trained."""
    records = results.read_history(run)
    if not records or "weight" not in (records[0].get("train") or {}):
        return None
    split = "val" if records[0].get("val") else "train"
    terms = [record[split] for record in records]
    steps = np.array([record["epoch"] for record in records], dtype=np.float64)
    loss = np.array([t["reverse_kl"] for t in terms]) if "reverse_kl" in terms[0] else None
    ess = np.array([_ess(one) for one in terms])
    return Curve(steps * (steps_an_epoch(run) or 1), ess, loss, split)


def steps_an_epoch(run: Run) -> int | None:
    """Return the optimizer steps of an epoch; None if the data are not there."""
    options = run.section("model", GaugeOptions)
    train = run.section("train", GaugeTrainOptions)
    n: int | None = options.draws.train
    if options.prior == "ensemble" or train.objective == "forward_kl":
        report = results.read_json(run.dataset.report) if run.dataset is not None else None
        n = report["splits"]["train"] if report else None
    if n is None or train.batch_size == "all":
        return None if n is None else 1
    return -(-n // train.batch_size)


def _ess(terms: Mapping[str, float]) -> float:
    weight, variance = terms["weight"], terms["log_weight_square"] - terms["log_weight"] ** 2
    if "inverse_weight" in terms:
        product = weight * terms["inverse_weight"]
        found = 1 / product if product > 0 else np.nan
    else:
        found = weight**2 / terms["weight_square"] if terms["weight_square"] > 0 else np.nan
    # Weights beyond what the loss takes to the exponent are cut off and look alike.
    reach = abs(terms["log_weight"]) + _TAIL * max(variance, 0.0) ** 0.5
    return float("nan") if reach > LARGEST_EXPONENT else float(found)


def _unit(experiment: ExperimentRun) -> str:
    known = all(steps_an_epoch(run) is not None for run in experiment.runs.values())
    return "optimizer step" if known else "epoch"


def _row(row: Sequence[Axes], found: Sequence[Group]) -> None:
    """Draw one theory: effective sample sizes and their ends, divergences and their ends."""
    flows = [flow for group in found for run in group.runs if (flow := runs.flow_of(run))]
    log_z = None if not flows else flows[0]["lattices"][0]["log_z"]
    constant = None if log_z is None else (log_z["known"] or log_z["estimate"])["value"]
    for group in found:
        curves = [one for run in group.repeats if (one := curve(run)) is not None]
        _lines(row[0], group, [(c.steps, c.ess) for c in curves])
        if constant is not None:
            kl = [(c.steps, constant + c.loss) for c in curves if c.loss is not None]
            _lines(row[2], group, kl)
    _ends(row[1], found, lambda first: first["ess"])
    _ends(row[3], found, lambda first: first["kl"]["reverse"])
    row[0].set(ylabel="effective sample size", title=runs.described(flows[0]) if flows else "")
    top = max(axes.get_ylim()[1] for axes in row[:2] if axes.has_data())
    for axes in row[:2]:
        axes.set_ylim(0, top)
    row[1].tick_params(labelleft=False)
    _divergences(row[2], row[3], log_z)


def _divergences(curves: Axes, ends: Axes, log_z: Mapping[str, Any] | None) -> None:
    """Give both panels of KL(q, p) one logarithmic axis."""
    known = log_z is not None and log_z["known"] is not None
    curves.set(ylabel="KL(q, p)", title=f"by the {'known' if known else 'estimated'} log Z")
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


def _lines(axes: Axes, group: Group, curves: Sequence[tuple[Floats, Floats]]) -> None:
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


def _ends(
    axes: Axes, found: Sequence[Group], of: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> None:
    """Draw the value of each evaluated run with its error."""
    for number, group in enumerate(found):
        for run, first in _evaluated(group):
            one = of(first)
            place = number + 0.12 * (group.repeats.index(run) - (len(group.repeats) - 1) / 2)
            error = one["error"] or 0.0
            axes.errorbar(place, one["value"], error, fmt="o", color=group.colour, capsize=2)
    axes.set_xticks([])
    axes.set_xlim(-0.6, len(found) - 0.4)
    axes.set_title("at the end")


def _evaluated(group: Group) -> Iterator[tuple[Run, Mapping[str, Any]]]:
    for run in group.repeats:
        flow = runs.flow_of(run)
        if flow is not None:
            yield run, flow["lattices"][0]


def _papers(axes: Axes, experiment: ExperimentRun, found: Sequence[Group]) -> None:
    """Draw the paper's effective sample sizes where the theory is the paper's."""
    flows = [flow for group in found for run in group.runs if (flow := runs.flow_of(run))]
    if not flows or not all(map(_is_papers, flows)):
        return
    known = read_paper(experiment)
    for group in found:
        options = group.runs[0].section("model", GaugeOptions)
        entry = known.get(_PAPERS[options.layers.loops])
        if entry is not None:
            look: dict[str, Any] = {"color": group.colour, "linestyle": ":", "linewidth": 0.9}
            axes.axhline(entry.value / 100, label=f"{group.name}, the paper", **look)


def _is_papers(flow: Mapping[str, Any]) -> bool:
    """Return whether a flow leads from the Haar measure to the theory of the paper's figure 1."""
    first = flow["lattices"][0]
    same_lattice = (first["extents"], first["n_colours"]) == _PAPERS_LATTICE
    return flow["prior"] == "haar" and same_lattice and flow["action"] == _PAPERS_ACTION


def _table(group: Group) -> Rows:
    """Return the curves of a group, and what its evaluation found in a last row each."""
    table: Rows = []
    ends = {run.variant: first for run, first in _evaluated(group)}
    for run in group.repeats:
        found, end = curve(run), ends.get(run.variant)
        if found is None:
            continue
        known = None if end is None else end["log_z"]["known"] or end["log_z"]["estimate"]
        about: list[object] = [run.variant, group.name, run.seed]
        for n, (steps, ess) in enumerate(zip(found.steps, found.ess, strict=True)):
            loss = None if found.loss is None or known is None else found.loss[n] + known["value"]
            kl = None if loss is None else float(loss)
            table.append([*about, int(steps), found.split, float(ess), None, kl, None])
        if end is not None:
            values = [x for one in (end["ess"], end["kl"]["reverse"]) for x in one.values()]
            table.append([*about, int(found.steps[-1]), "evaluated", *values])
    return table
