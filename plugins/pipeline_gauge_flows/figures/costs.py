"""What flows cost: an independent configuration, and a derivative by Eq. 19 of the paper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from pipeline_core.config.experiments import BASE
from pipeline_core.figures import Drawn, Rows, tables
from pipeline_core.figures.expected import read_paper
from pipeline_core.figures.provenance import format_duration
from pipeline_core.figures.quantities import format_number
from pipeline_core.run import ExperimentRun
from pipeline_core.training.checkpoint import load_model
from pipeline_gauge_flows.evaluation.cost import cheapest, training_seconds
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.derivatives import CONJUGATE, Derivatives, derivatives
from pipeline_gauge_flows.figures.runs import Evaluated, Report

_CHAINS: Final = {"heatbath": "heat bath", "hmc": "HMC"}
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_COLUMNS: Final = 3
"""Runs that a page has room for."""


def time(seconds: float | None) -> str:
    """Return a time for readers: 12 µs, 3.1 ms, 2.4 min."""
    if seconds is None:
        return "–"
    if seconds >= 100:
        return format_duration(seconds)
    factor, unit = next((f, u) for f, u in _UNITS if seconds >= f or u == "µs")
    return f"{format_number(seconds / factor, 2)} {unit}"


def draw_samplers(experiment: ExperimentRun) -> Drawn:
    """Draw a table of flows, heat bath and HMC, and their times."""
    found = [one for one in runs.evaluated(experiment) if one.flow.get("cost")]
    if not found:
        return None
    header = [
        "by", "theory", "a configuration", "for an independent one", "independent one", "training",
        "pays after",
    ]  # fmt: skip
    cells: list[list[str]] = []
    table: Rows = [
        [
            "variant", "by", "seconds", "cpu_seconds", "needed_reweighted", "needed_chain",
            "tau_int", "seconds_per_independent", "training_seconds", "break_even",
            "flow_over_rival", "device",
        ]
    ]  # fmt: skip
    for one in found:
        cells.append(_flow_cells(one))
        table.append(_flow_row(one))
    by_theory: dict[str, list[Evaluated]] = {}
    for one in found:
        by_theory.setdefault(runs.described(one.flow), []).append(one)
    for name, members in by_theory.items():
        for key in _CHAINS:
            timed = [one for one in members if key in one.flow["cost"]]
            if timed:
                cells.append(_chain_cells(name, key, timed))
                table += [_chain_row(one, key) for one in timed]
    return tables.draw(header, cells, [0.15, 0.12, 0.14, 0.2, 0.16, 0.09, 0.14]), table


def _flow_cells(one: Evaluated) -> list[str]:
    cost = one.flow["cost"]
    costs = {k: x for k, x in cost["flow"]["seconds_per_independent"].items() if x is not None}
    needed, least = "not known", None
    if costs:
        best = min(costs, key=costs.__getitem__)
        how = {"reweighted": "1 / ESS", "chain": "2 τ of the chain"}[best]
        needed, least = f"{format_number(costs[best] / _each(cost), 2)}: {how}", costs[best]
    return [
        f"flow: {one.run.label}",
        runs.described(one.flow),
        time(_each(cost)),
        needed,
        time(least),
        time(cost["training_seconds"]),
        _pays(cost),
    ]


def _each(cost: Report) -> float:
    """Return the time of a configuration of the flow, on the device that it was timed on."""
    found: float = cost["flow"]["cpu_seconds" if cost["device"] == "cpu" else "seconds"]
    return found


def _pays(cost: Report) -> str:
    """Return how many configurations pay for the training, beside the cheapest rival."""
    if cost["rival"] is None or cost["flow_over_rival"] is None:
        return "–"
    if cost["break_even"] is not None:
        return f"{cost['break_even']:,.0f} configurations"
    return f"never, {format_number(cost['flow_over_rival'], 2)} × {_CHAINS[cost['rival']]}"


def _chain_cells(theory: str, key: str, timed: Sequence[Evaluated]) -> list[str]:
    """Return the fastest of equal measurements beside different flows."""
    chains = [one.flow["cost"][key] for one in timed]
    best = min(chains, key=lambda one: one["cpu_seconds"])
    needed = None if best["tau_int"] is None else max(1.0, 2 * best["tau_int"])
    return [
        _CHAINS[key],
        theory,
        time(best["cpu_seconds"]),
        "–" if needed is None else f"{format_number(needed, 2)}: 2 τ",
        time(best["seconds_per_independent"]),
        "none",
        "",
    ]


def _flow_row(one: Evaluated) -> list[object]:
    cost, flow = one.flow["cost"], one.flow["cost"]["flow"]
    each = _each(cost)
    needed = {k: x / each if x else None for k, x in flow["seconds_per_independent"].items()}
    tau = one.first["metropolis"]["tau_int"]
    return [
        one.run.variant, "flow", flow["seconds"], flow["cpu_seconds"], needed["reweighted"],
        needed["chain"], tau, cheapest(cost), cost["training_seconds"], cost["break_even"],
        cost["flow_over_rival"], cost["device"],
    ]  # fmt: skip


def _chain_row(one: Evaluated, key: str) -> list[object]:
    found = one.flow["cost"][key]
    return [
        one.run.variant, _CHAINS[key], found["seconds"], found["cpu_seconds"], None, None,
        found["tau_int"], found["seconds_per_independent"], None, None, None, "cpu",
    ]  # fmt: skip


@dataclass(frozen=True)
class Terms:
    """The terms of Eq. 19 by configuration, of whatever unit; None for what is not known.

    Attributes:
        sampled: Generation and a measurement.
        measured: A measurement; 0 where it was not timed apart.
        mapped: Flow evaluation, reweighting and two measurements.
        training: Of the flow.
        epsilon_ratio: Variance of epsilon-reweighting over that of the flow.
        independent_ratio: Variance of two independent ensembles over that of the flow.
    """

    sampled: float | None
    measured: float
    mapped: float | None
    training: float | None
    epsilon_ratio: float | None
    independent_ratio: float | None

    @property
    def flows(self) -> float | None:
        """Cost of a configuration with the flow, its training left out."""
        if self.sampled is None or self.mapped is None:
            return None
        return self.sampled - self.measured + self.mapped

    @property
    def independent(self) -> float | None:
        """Cost of a configuration at each end of the step."""
        return None if self.sampled is None else 2 * self.sampled

    @property
    def pays_beside_epsilon(self) -> float | None:
        """Configurations after which the flow has a smaller error than others at equal cost."""
        return self._break_even(self.epsilon_ratio, self.sampled)

    @property
    def pays_beside_independent(self) -> float | None:
        """The same beside independent ensembles."""
        return self._break_even(self.independent_ratio, self.independent)

    def _break_even(self, ratio: float | None, rival: float | None) -> float | None:
        if ratio is None or rival is None or self.flows is None or self.training is None:
            return None
        saved = ratio * rival - self.flows
        return self.training / saved if saved > 0 else inf


_TERMS: Final = {
    "sampled": "generation and measurement: a configuration by ε-reweighting",
    "mapped": "flow evaluation, reweighting and two measurements",
    "flows": "a configuration with the flow",
    "independent": "a configuration of each of two independent ensembles",
    "training": "training",
    "epsilon_ratio": "variance of ε-reweighting at its best step over that of the flow",
    "independent_ratio": "variance of independent ensembles over that of the flow",
    "pays_beside_epsilon": "the flow pays beside ε-reweighting after",
    "pays_beside_independent": "the flow pays beside independent ensembles after",
}
"""Attributes of `Terms` that the table has, and what it calls them."""


def draw_derivatives(experiment: ExperimentRun) -> Drawn:
    """Draw the table of Eq. 19, with the paper's numbers beside ours."""
    found = derivatives(experiment)[:_COLUMNS]
    if not found:
        return None
    columns = {one.run.label: _ours(one) for one in found}
    theirs = _papers({name: entry.value for name, entry in read_paper(experiment).items()})
    table: Rows = [["term", "paper_gpu_hours", *(f"{name}_seconds" for name in columns)]]
    cells = []
    for key, called in _TERMS.items():
        paper: float | None = getattr(theirs, key, None)
        ours: list[float | None] = [getattr(terms, key) for terms in columns.values()]
        table.append([key, paper, *ours])
        cells.append([called, _cell(key, paper, hours=True), *(_cell(key, x) for x in ours)])
    names = ["here"] if list(columns) == [BASE] else list(columns)
    widths = [0.46, 0.24, *[0.3 / len(columns)] * len(columns)]
    return tables.draw(["Eq. 19", "the paper", *names], cells, widths), table


def _cell(key: str, value: float | None, *, hours: bool = False) -> str:
    if value is None:
        return "–"
    if key.startswith("pays"):
        return "never" if value == inf else f"{value:,.0f} configurations"
    if key.endswith("ratio"):
        return format_number(value, 2)
    return f"{value:g} GPU h" if hours else time(value)


def _papers(known: Mapping[str, float]) -> Terms | None:
    """Return the paper's terms in GPU hours, the variance ratio at the lower end of its range."""
    names = ("cost_generation", "cost_measurement", "cost_flow", "cost_reweighting")
    others = ("cost_training", "configurations_ratio_low")
    if any(name not in known for name in (*names, *others)):
        return None
    generation, measurement, flow, reweighting = (known[name] for name in names)
    training, ratio = (known[name] for name in others)
    return Terms(
        sampled=generation + measurement,
        measured=measurement,
        mapped=flow + reweighting + 2 * measurement,
        training=training,
        epsilon_ratio=ratio,
        independent_ratio=None,
    )


def _ours(one: Derivatives) -> Terms:
    seconds, ratios = one.report["seconds"], one.observables[CONJUGATE]["error_ratio"]
    squares = {k: None if x is None else x**2 for k, x in ratios.items()}
    training = training_seconds(one.run)
    if training is not None and one.run.model.exists():
        # As the other terms: wall time of all ranks.
        training *= json.loads(load_model(one.run.model)["provenance"])["ranks"]
    return Terms(
        sampled=seconds["generated"],
        measured=0.0,
        mapped=seconds["mapped"],
        training=training,
        epsilon_ratio=squares["best"],
        independent_ratio=squares.get("independent"),
    )
