"""Trained flows for figures: evaluated runs, and groups that differ only in the seed."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline_core.figures import results, style
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_gauge_flows.options import GaugeOptions

Report = dict[str, Any]

_LOOPS: Final = {"plaquette": "fixed plaquette", "learned": "learned loops"}
_TRAINING: Final = ("model", "graph", "train")
"""Sections that, with the seed, determine a trained flow."""
_USUAL_COLOURS, _USUAL_ACTION = 3, "wilson"
_ACTIONS: Final = {"symanzik": "Lüscher-Weisz", "iwasaki": "Iwasaki"}
_NUMBER: Final = re.compile(r"_?(seed)?_?\d+$")


@dataclass(frozen=True)
class Group:
    """Variants that differ only in the seed, or in stages after the training.

    Attributes:
        name: Displayed name.
        runs: All runs of the group.
        colour: Colour in figures.
    """

    name: str
    runs: Sequence[Run]
    colour: str

    @property
    def repeats(self) -> list[Run]:
        """One run a seed."""
        first: dict[int, Run] = {}
        for run in self.runs:
            first.setdefault(run.seed, run)
        return list(first.values())


@dataclass(frozen=True)
class EvaluatedRun:
    """Evaluated run.

    Attributes:
        run: The run.
        flow: Key `flow` of its metrics.
        colour: Colour of its group.
    """

    run: Run
    flow: Report
    colour: str

    @property
    def first(self) -> Report:
        """The report on the lattice of the training."""
        report: Report = self.flow["lattices"][0]
        return report

    @property
    def log_z(self) -> float:
        """Log Z from theory, else from the flow."""
        entry = self.first["log_z"]
        value: float = (entry["known"] or entry["estimate"])["value"]
        return value


def group_runs(experiment: ExperimentRun) -> list[Group]:
    """Return the variants of an experiment, grouped by equal training."""
    alike: dict[str, list[Run]] = {}
    for run in experiment.runs.values():
        alike.setdefault(_identify_training(run), []).append(run)
    names = _name_groups(list(alike.values()))
    return [
        Group(name, runs, style.choose_colour(number))
        for number, (name, runs) in enumerate(zip(names, alike.values(), strict=True))
    ]


def list_evaluated(experiment: ExperimentRun) -> list[EvaluatedRun]:
    """Return the runs that were evaluated, group by group."""
    evaluated = []
    for group in group_runs(experiment):
        for run in group.runs:
            flow = read_flow(run)
            if flow is not None:
                evaluated.append(EvaluatedRun(run, flow, group.colour))
    return evaluated


def read_flow(run: Run) -> Report | None:
    """Return the evaluation of the flow of a run; None without one."""
    content = results.read_json(run.metrics)
    flow: Report | None = content.get("flow") if isinstance(content, dict) else None
    return flow


def identify_theory(run: Run) -> str:
    """Return a key that identifies the base and target distributions of a flow."""
    options = run.get_section("model", GaugeOptions)
    action = options.action.model_dump(mode="json") if options.action else None
    lattice = run.sections["graph"].model_dump(mode="json").get("lattice")
    dataset = run.dataset.name if run.dataset is not None else None
    start = dataset if None in (action, lattice) or options.prior == "ensemble" else None
    return json.dumps([options.prior, action, lattice, start])


def describe_theory(flow: Report) -> str:
    """Return the theory for a title: 4 x 4, β = 6; group and action if not the default."""
    action, first = flow["action"], flow["lattices"][0]
    parts = [format_extents(first), f"β = {action['beta']:g}"]
    if first["n_colours"] != _USUAL_COLOURS:
        parts.insert(0, f"SU({first['n_colours']})")
    if action["name"] != _USUAL_ACTION:
        parts.append(_ACTIONS[action["name"]])
    if action["anisotropy"]:
        parts.append(f"λ = {action['anisotropy']:g}")
    if quarks := action.get("fermions"):
        parts.append(f"κ = {quarks['kappa']:g}, 2κμ = {quarks['two_kappa_mu']:g}")
    return ", ".join(parts)


def format_extents(report: Report) -> str:
    """Return the lattice of a report, such as 4×4×8."""
    return "×".join(map(str, report["extents"]))


def _identify_training(run: Run) -> str:
    return json.dumps([run.sections[key].model_dump(mode="json") for key in _TRAINING])


def _name_groups(alike: Sequence[Sequence[Run]]) -> list[str]:
    """Return the names of groups: by their loops if these differ, else by variant."""
    loops = [_LOOPS[runs[0].get_section("model", GaugeOptions).layers.loops] for runs in alike]
    return loops if len(set(loops)) == len(alike) > 1 else [_strip_number(runs) for runs in alike]


def _strip_number(runs: Sequence[Run]) -> str:
    """Return the name of a variant, without the number at its end if there are several."""
    name = runs[-1].variant
    return _NUMBER.sub("", name) or name if len(runs) > 1 else runs[0].label
