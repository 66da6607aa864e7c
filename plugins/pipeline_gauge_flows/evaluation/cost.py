"""Cost of an independent configuration: by the flow, by heat bath, by Hybrid Monte Carlo.

All are timed in one process on one machine. The cost is the total CPU time of all cores, which
depends little on other programs and on the number of threads; for a flow on a GPU it is the time of
the GPU. A flow needs 1 / ESS proposals per configuration if averages are reweighted, or 2 tau_int
proposals of its Markov chain; heat bath and HMC need 2 tau_int updates; tau_int is the plaquette's.
No cost is given for a flow whose weights have too long a tail, or whose chain was stuck.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.figures.results import read_history
from pipeline_core.project.run import Run
from pipeline_core.training.model_file import load_model
from pipeline_gauge_flows.data.datasets import HeatbathOptions, HmcOptions
from pipeline_gauge_flows.data.ensembles.chains import make_chains
from pipeline_gauge_flows.data.ensembles.statistics import estimate
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.observables import plaquette
from pipeline_gauge_flows.evaluation.options import CostOptions
from pipeline_gauge_flows.evaluation.series import Series

Floats = NDArray[np.float64]

_WARM: Final = 30
"""Updates of each chain before the timing."""
_HMC_CHAINS: Final = 8
"""HMC chains in one batch."""
_SHORTEST: Final = 32
"""Fewest trajectories of each HMC chain for an autocorrelation time."""


def measure_costs(
    run: Run,
    action: EffectiveAction,
    options: CostOptions,
    series: Series,
    ess: float | None,
    tau_int: float | None,
    device: torch.device,
) -> dict[str, Any]:
    """Return the costs, JSON-able; in seconds of wall time, and of CPU time of all cores (`cpu_`).

    Args:
        run: The run, for its seed and the time of its training.
        action: Action that is sampled.
        options: Algorithms timed for comparison.
        series: Series of the flow's samples, with their times.
        ess: Effective sample size of the flow; None if it is not reliable.
        tau_int: Autocorrelation time of the Markov chain of its proposals; None if unknown.
        device: Device on which the flow was timed; the others run on the CPU.
    """
    costs: dict[str, Any] = {
        "device": device.type,
        "threads": torch.get_num_threads(),
        "training_seconds": read_training_seconds(run),
        "training_cost": compute_training_cost(run, device),
        "flow": compute_flow_cost(series, ess, tau_int, device),
    }
    n, seed = _HMC_CHAINS, run.seed
    hmc = HmcOptions(method="hmc", n_configurations=n, chains=n, start="cold", seed=seed)
    costs["hmc"] = measure_chain_cost(action, hmc, max(_SHORTEST, options.updates // n))
    if action.options.fermions is None and action.gauge.rectangle_weight == 0:
        heatbath = HeatbathOptions(method="heatbath", n_configurations=1, start="cold", seed=seed)
        costs["heatbath"] = measure_chain_cost(action, heatbath, options.updates)
    return costs | compare_costs(costs)


def compute_flow_cost(
    series: Series, ess: float | None, tau_int: float | None, device: torch.device
) -> dict[str, Any]:
    """Return the cost of the flow's configurations; medians over batches."""
    wall, cpu = (float(np.median(series[name])) for name in ("seconds", "cpu_seconds"))
    one = cpu if device.type == "cpu" else wall
    proposals = {
        "reweighted": None if ess is None else 1 / ess,
        "chain": None if tau_int is None else 2 * tau_int,
    }
    independent = {
        how: None if number is None else max(number, 1.0) * one for how, number in proposals.items()
    }
    return {
        "seconds": wall,
        "cpu_seconds": cpu,
        "seconds_per_independent": independent,
    }


def measure_chain_cost(
    action: EffectiveAction, options: HeatbathOptions | HmcOptions, n_updates: int
) -> dict[str, Any]:
    """Time updates of Markov chains and estimate their autocorrelation time.

    Args:
        action: Action that is sampled.
        options: Options of the chains.
        n_updates: Number of timed updates, each of all chains.
    """
    chains = make_chains(action.options, action.lattice, options, n_updates)
    for _ in range(_WARM):
        chains.update()
    chains.begin()
    n_chains = len(chains.links)
    times, values = np.empty((n_updates, 2)), np.empty((n_updates, n_chains))
    for number in range(n_updates):
        clocks = time.perf_counter(), time.process_time()
        chains.update()
        times[number] = time.perf_counter() - clocks[0], time.process_time() - clocks[1]
        values[number] = plaquette(chains.links, action.lattice).numpy()
    average = estimate(list(values.T))
    # The resolution of the process clock may be coarser than an update.
    wall, cpu = np.median(times[:, 0]) / n_chains, times[:, 1].mean() / n_chains
    facts = chains.summarize()
    # Stuck chains have no autocorrelation time.
    moves = average.tau_int is not None and facts["acceptance"] > 0
    independent = float(cpu) * max(1.0, 2 * (average.tau_int or 0)) if moves and cpu else None
    return {
        "seconds": float(wall),
        "cpu_seconds": float(cpu),
        "tau_int": average.tau_int if moves else None,
        "tau_error": average.tau_error if moves else None,
        "seconds_per_independent": independent,
        **facts,
    }


def compare_costs(report: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the flow with the cheapest other algorithm.

    Returns:
        `rival`, its name, None if no other chain moves; `flow_over_rival`, the ratio of the costs
        of an independent configuration without training, None if the flow's cost is unknown; and
        `break_even`, the number of configurations after which the flow has paid for its training:
        None if it never does.
    """
    named = {k: report[k]["seconds_per_independent"] for k in ("heatbath", "hmc") if k in report}
    costs = {name: cost for name, cost in named.items() if cost is not None}
    if not costs:
        return {"rival": None, "flow_over_rival": None, "break_even": None}
    rival = min(costs, key=costs.__getitem__)
    own = find_cheapest(report)
    if own is None:
        return {"rival": rival, "flow_over_rival": None, "break_even": None}
    saved, training = costs[rival] - own, report["training_cost"]
    return {
        "rival": rival,
        "flow_over_rival": own / costs[rival],
        "break_even": training / saved if saved > 0 and training is not None else None,
    }


def find_cheapest(report: Mapping[str, Any]) -> float | None:
    """Return the cost of an independent configuration of the flow; None if unknown."""
    return min(
        (x for x in report["flow"]["seconds_per_independent"].values() if x is not None),
        default=None,
    )


def compute_training_cost(run: Run, device: torch.device) -> float | None:
    """Return the time of all cores or GPUs of the training; None if unknown, or on another device.

    Args:
        run: The run, whose model records their number.
        device: Device on which the flow was timed.
    """
    seconds = read_training_seconds(run)
    made = json.loads(load_model(run.model)["provenance"])
    each = made["threads"] if device.type == "cpu" else 1
    if seconds is None or made["device"] != device.type:
        return None
    return seconds * int(each) * int(made["ranks"])


def read_training_seconds(run: Run) -> float | None:
    """Return the wall time of the training from the history; None if not recorded."""
    times = [record.get("seconds") for record in read_history(run, with_start=True)]
    recorded = [one for one in times if one is not None]
    return sum(recorded) if recorded else None
