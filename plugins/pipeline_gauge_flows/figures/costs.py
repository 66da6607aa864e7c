"""Cost of an independent configuration, by flows and by Markov chains."""

from typing import Final

from pipeline_core.figures import Drawn, tabulate
from pipeline_core.project.run import ExperimentRun
from pipeline_gauge_flows.evaluation.cost import find_cheapest
from pipeline_gauge_flows.figures import runs
from pipeline_gauge_flows.figures.runs import EvaluatedRun

_CHAINS: Final = {"heatbath": "heat bath", "hmc": "HMC"}


def draw(experiment: ExperimentRun) -> Drawn:
    """Tabulate flows, then heat bath and HMC of each theory, and their times."""
    timed = [one for one in runs.list_evaluated(experiment) if one.flow.get("cost")]
    by_theory: dict[str, list[EvaluatedRun]] = {}
    for one in timed:
        by_theory.setdefault(runs.describe_theory(one.flow), []).append(one)
    chains = [
        _describe_chain(one, key)
        for members in by_theory.values()
        for key in _CHAINS
        for one in members
        if key in one.flow["cost"]
    ]
    return (None, tabulate([*map(_describe_flow, timed), *chains])) if timed else None


def _describe_flow(one: EvaluatedRun) -> dict[str, object]:
    cost, flow = one.flow["cost"], one.flow["cost"]["flow"]
    # The time of a configuration on the device on which it was measured.
    each = flow["cpu_seconds" if cost["device"] == "cpu" else "seconds"]
    needed = {k: x / each if x else None for k, x in flow["seconds_per_independent"].items()}
    return {
        "variant": one.run.variant,
        "by": "flow",
        "seconds": flow["seconds"],
        "cpu_seconds": flow["cpu_seconds"],
        "needed_reweighted": needed["reweighted"],
        "needed_chain": needed["chain"],
        "tau_int": one.first["metropolis"]["tau_int"],
        "seconds_per_independent": find_cheapest(cost),
        "training_seconds": cost["training_seconds"],
        "break_even": cost["break_even"],
        "flow_over_rival": cost["flow_over_rival"],
        "device": cost["device"],
    }


def _describe_chain(one: EvaluatedRun, key: str) -> dict[str, object]:
    chain = one.flow["cost"][key]
    return {
        "variant": one.run.variant,
        "by": _CHAINS[key],
        "seconds": chain["seconds"],
        "cpu_seconds": chain["cpu_seconds"],
        "needed_reweighted": None,
        "needed_chain": None,
        "tau_int": chain["tau_int"],
        "seconds_per_independent": chain["seconds_per_independent"],
        "training_seconds": None,
        "break_even": None,
        "flow_over_rival": None,
        "device": "cpu",
    }
