"""Cost of an independent configuration, by flows and by Markov chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline_core.figures import Drawn, Rows, tables
from pipeline_core.figures.formats import format_number
from pipeline_core.figures.provenance import format_duration
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.evaluation.cost import find_cheapest
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.runs import EvaluatedRun, Report

_CHAINS: Final = {"heatbath": "heat bath", "hmc": "HMC"}
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def format_time(seconds: float | None) -> str:
    """Format a time: 12 µs, 3.1 ms, 2.4 min."""
    if seconds is None:
        return "–"
    if seconds >= 100:
        return format_duration(seconds)
    factor, unit = next((f, u) for f, u in _UNITS if seconds >= f or u == "µs")
    return f"{format_number(seconds / factor, 2)} {unit}"


def draw(experiment: ExperimentRun) -> Drawn:
    """Draw a table of flows, heat bath and HMC, and their times."""
    timed_runs = [one for one in runs.list_evaluated(experiment) if one.flow.get("cost")]
    if not timed_runs:
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
    for one in timed_runs:
        cells.append(_make_flow_cells(one))
        table.append(_make_flow_row(one))
    by_theory: dict[str, list[EvaluatedRun]] = {}
    for one in timed_runs:
        by_theory.setdefault(runs.describe_theory(one.flow), []).append(one)
    for name, members in by_theory.items():
        for key in _CHAINS:
            timed = [one for one in members if key in one.flow["cost"]]
            if timed:
                cells.append(_make_chain_cells(name, key, timed))
                table += [_make_chain_row(one, key) for one in timed]
    return tables.draw(header, cells, [0.15, 0.12, 0.14, 0.2, 0.16, 0.09, 0.14]), table


def _make_flow_cells(one: EvaluatedRun) -> list[str]:
    cost = one.flow["cost"]
    costs = {k: x for k, x in cost["flow"]["seconds_per_independent"].items() if x is not None}
    needed, least = "not known", None
    if costs:
        best = min(costs, key=costs.__getitem__)
        how = {"reweighted": "1 / ESS", "chain": "2 τ of the chain"}[best]
        needed, least = f"{format_number(costs[best] / _read_each(cost), 2)}: {how}", costs[best]
    return [
        f"flow: {one.run.label}",
        runs.describe_theory(one.flow),
        format_time(_read_each(cost)),
        needed,
        format_time(least),
        format_time(cost["training_seconds"]),
        _format_break_even(cost),
    ]


def _read_each(cost: Report) -> float:
    """Return the time of a configuration of the flow, on the device on which it was timed."""
    seconds: float = cost["flow"]["cpu_seconds" if cost["device"] == "cpu" else "seconds"]
    return seconds


def _format_break_even(cost: Report) -> str:
    """Format the number of configurations that pay for the training, against the best rival."""
    if cost["rival"] is None or cost["flow_over_rival"] is None:
        return "–"
    if cost["break_even"] is not None:
        return f"{cost['break_even']:,.0f} configurations"
    return f"never, {format_number(cost['flow_over_rival'], 2)} × {_CHAINS[cost['rival']]}"


def _make_chain_cells(theory: str, key: str, timed: Sequence[EvaluatedRun]) -> list[str]:
    """Return the fastest of equal measurements made with different flows."""
    chains = [one.flow["cost"][key] for one in timed]
    best = min(chains, key=lambda one: one["cpu_seconds"])
    needed = None if best["tau_int"] is None else max(1.0, 2 * best["tau_int"])
    return [
        _CHAINS[key],
        theory,
        format_time(best["cpu_seconds"]),
        "–" if needed is None else f"{format_number(needed, 2)}: 2 τ",
        format_time(best["seconds_per_independent"]),
        "none",
        "",
    ]


def _make_flow_row(one: EvaluatedRun) -> list[object]:
    cost, flow = one.flow["cost"], one.flow["cost"]["flow"]
    each = _read_each(cost)
    needed = {k: x / each if x else None for k, x in flow["seconds_per_independent"].items()}
    tau = one.first["metropolis"]["tau_int"]
    return [
        one.run.variant, "flow", flow["seconds"], flow["cpu_seconds"], needed["reweighted"],
        needed["chain"], tau, find_cheapest(cost), cost["training_seconds"], cost["break_even"],
        cost["flow_over_rival"], cost["device"],
    ]  # fmt: skip


def _make_chain_row(one: EvaluatedRun, key: str) -> list[object]:
    chain = one.flow["cost"][key]
    return [
        one.run.variant, _CHAINS[key], chain["seconds"], chain["cpu_seconds"], None, None,
        chain["tau_int"], chain["seconds_per_independent"], None, None, None, "cpu",
    ]  # fmt: skip
