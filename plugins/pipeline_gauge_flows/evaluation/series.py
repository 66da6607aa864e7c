"""Mapping and measurement of configurations, batch by batch, data-parallel over ranks.

Configurations depend on their number alone, and batches do not depend on the world size: results
are the same for any number of ranks. Links are held for one batch only.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks
from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.training.samples import HaarSamples

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Series = dict[str, Floats]
"""Name -> (n, ...), a row for each configuration, in order."""
Shots = Callable[[Sequence[int], Tensor, Tensor], Mapping[str, Tensor]]
"""Function of indices in the file and links before and after the map, which returns columns."""

START, END = "start:", "end:"
"""Prefixes of measurements before and after a map."""


def draw_series(
    flow: Flow,
    action: EffectiveAction,
    samples: HaarSamples,
    observables: Observables,
    batch_size: int,
    ranks: Ranks,
) -> Series:
    """Map configurations of the Haar measure.

    Returns:
        `log_weight`, `action`, the observables, and `seconds` and `cpu_seconds`: the mean time for
        drawing and mapping a configuration of the same batch.

    Raises:
        ValueError: A weight is not finite.
    """

    def compute_columns(numbers: range) -> Mapping[str, Tensor]:
        clocks = time.perf_counter(), time.process_time()
        links = samples.batch(numbers)["base_links"].to(ranks.device)
        moved, log_det = flow(links)
        value = action(moved)
        log_weight = (log_det - value).cpu()  # synchronizes with a GPU
        seconds = time.perf_counter() - clocks[0], time.process_time() - clocks[1]
        times = torch.tensor(seconds, dtype=torch.float64) / len(numbers)
        return {
            "log_weight": log_weight,
            "action": value,
            "seconds": times[0].expand(len(numbers)),
            "cpu_seconds": times[1].expand(len(numbers)),
            **observables(moved),
        }

    return _gather_batches(len(samples), batch_size, ranks, compute_columns)


def map_back(
    flow: Flow,
    action: EffectiveAction,
    ensemble: tuple[Ensemble, Numbers],
    observables: Observables,
    batch_size: int,
    ranks: Ranks,
) -> Series:
    """Map configurations of the target through the inverse of a flow of the Haar measure.

    Args:
        flow: The flow.
        action: Target action, from which the configurations were drawn.
        ensemble: The file, and the indices of the configurations.
        observables: Observables to measure.
        batch_size: Configurations per batch of a rank.
        ranks: The ranks, which share the work.

    Returns:
        `log_weight`, `action` and the observables.

    Raises:
        ValueError: A weight is not finite.
    """
    file, chosen = ensemble

    def compute_columns(numbers: range) -> Mapping[str, Tensor]:
        links = file.read_links(chosen[numbers.start : numbers.stop].tolist()).to(ranks.device)
        value = action(links)
        log_density = flow.inverse(links)[1]
        return {"log_weight": -value - log_density, "action": value, **observables(links)}

    return _gather_batches(len(chosen), batch_size, ranks, compute_columns)


def map_ensemble(
    flow: Flow,
    actions: tuple[EffectiveAction, EffectiveAction],
    ensemble: tuple[Ensemble, Numbers],
    observables: Observables,
    batch_size: int,
    ranks: Ranks,
    shots: Shots | None = None,
) -> Series:
    """Map configurations of the ensemble from which a flow starts.

    Args:
        flow: The flow.
        actions: Base and target action.
        ensemble: The file, and the indices of the configurations.
        observables: Observables to measure.
        batch_size: Configurations per batch of a rank.
        ranks: The ranks, which share the work.
        shots: Further columns, from the indices in the file and the links before and after the map.

    Returns:
        `log_weight`; `log_weight_identity`, without the flow; before (`start:`) and after
        (`end:`) the map both actions (`base`, `target`) and the observables; and for each
        configuration the mean times of its batch, `seconds_flow` for the map,
        `seconds_reweighting` for the two actions of its weight, and `seconds_measurement` for one
        measurement.

    Raises:
        ValueError: A weight is not finite.
    """
    (file, chosen), (base, target) = ensemble, actions

    def compute_columns(numbers: range) -> Mapping[str, Tensor]:
        rows = chosen[numbers.start : numbers.stop].tolist()
        links = file.read_links(rows).to(ranks.device)
        clocks = [time.perf_counter()]
        moved, log_det = flow(links)
        log_det = log_det.cpu()  # synchronizes with a GPU
        clocks.append(time.perf_counter())
        there, here = target(moved).cpu(), base(links).cpu()
        clocks.append(time.perf_counter())
        columns: dict[str, Tensor] = {}
        for prefix, one in ((START, links), (END, moved)):
            values = observables(one, rows)
            columns |= {f"{prefix}{name}": value.cpu() for name, value in values.items()}
        clocks.append(time.perf_counter())
        unmoved = _exchange(here, links, base, target)
        columns |= {
            f"{START}base": here, f"{START}target": unmoved,
            f"{END}base": _exchange(there, moved, target, base), f"{END}target": there,
        }  # fmt: skip
        seconds = torch.tensor(clocks, dtype=torch.float64).diff() / len(rows)
        seconds[2] /= 2  # before and after
        names = ("seconds_flow", "seconds_reweighting", "seconds_measurement")
        columns |= {k: x.expand(len(rows)) for k, x in zip(names, seconds, strict=True)}
        weights = {"log_weight": here + log_det - there, "log_weight_identity": here - unmoved}
        if shots is not None:
            columns |= shots(rows, links, moved)
        return weights | columns

    return _gather_batches(len(chosen), batch_size, ranks, compute_columns)


def _exchange(value: Tensor, links: Tensor, old: EffectiveAction, new: EffectiveAction) -> Tensor:
    """Return the new action of links from the old; common quarks are not computed again."""
    quarks = old.options.fermions
    if quarks is None or quarks != new.options.fermions:
        return new(links).cpu()
    return value - old.gauge(links).cpu() + new.gauge(links).cpu()


def split_chains(ensemble: Ensemble, chosen: Numbers) -> ChainRows:
    """Return the rows of each Markov chain among chosen configurations.

    If too few of a chain are chosen for its autocorrelation time, the plaquette's of all
    configurations is used. For a fraction f of a chain it is 1/2 + f (tau - 1/2).
    """
    numbers = ensemble.chain[chosen]
    names, counts = np.unique(numbers, return_counts=True)
    rows = [np.flatnonzero(numbers == name) for name in names]
    tau = None if ensemble.tau_int is None else max(ensemble.tau_int, 0.5)
    if tau is not None:
        part = counts.sum() / np.isin(ensemble.chain, names).sum()
        tau = 0.5 + part * (tau - 0.5)
    return ChainRows(rows, tau)


def select_prefix(series: Series, prefix: str) -> Series:
    """Return the columns with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in series.items() if k.startswith(prefix)}


def _gather_batches(
    n: int, batch_size: int, ranks: Ranks, work: Callable[[range], Mapping[str, Tensor]]
) -> Series:
    """Return the result of `work` for n configurations, on every rank."""
    pieces = [range(start, min(start + batch_size, n)) for start in range(0, n, batch_size)]
    own: list[dict[str, Any]] = []
    for piece in pieces[ranks.rank :: ranks.size]:
        with torch.no_grad():
            columns = work(piece)
        arrays = {name: value.cpu().double().numpy() for name, value in columns.items()}
        own.append(arrays)
        require_finite(arrays["log_weight"], piece.start)
    parts = ranks.gather(own)
    ordered = [parts[i % ranks.size][i // ranks.size] for i in range(len(pieces))]
    return {name: np.concatenate([one[name] for one in ordered]) for name in ordered[0]}


def require_finite(log_weight: Floats, start: int) -> None:
    """Check the weights of configurations, the first of which has the number `start`.

    Raises:
        ValueError: One is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(log_weight))
    if len(bad):
        raise ValueError(
            f"the weight of configuration {start + bad[0]} is not finite: its action or the "
            "log-determinant of the flow is not; check the action and the links, or train with a "
            "lower learning rate"
        )


def list_observables(series: Series) -> Sequence[str]:
    """Return the names of the scalar observables among columns."""
    other = {
        "log_weight", "log_weight_identity", "action", "seconds", "cpu_seconds", "planes",
        "base", "target", "seconds_flow", "seconds_reweighting", "seconds_measurement",
        "pion",
    }  # fmt: skip
    return [name for name in series if name not in other]
