"""Second ensemble, generated like the dataset's, at the other end of the step."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.project.run import DatasetRun
from pipeline_gauge_flows.data.datasets import EnsembleDataset
from pipeline_gauge_flows.data.ensembles.origins import GeneratedEnsemble, Sample
from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.series import split_chains
from pipeline_gauge_flows.inference.derivative import Step, name_columns

Floats = NDArray[np.float64]

_SEED: Final = 1
"""Offset of the seed from the dataset's."""


@dataclass(frozen=True)
class SecondEnsemble:
    """Observables of the second ensemble.

    Attributes:
        columns: Name -> (n,), see `derivative.name_columns`.
        chains: Rows of each Markov chain.
        seconds: Time to generate a configuration, with thermalisation and without measurements.
    """

    columns: dict[str, Floats]
    chains: ChainRows
    seconds: float


def make_second(
    dataset: DatasetRun,
    actions: tuple[EffectiveAction, EffectiveAction],
    step: Step,
    ensemble: Ensemble,
    observables: Observables,
    n: int,
    batch_size: int,
) -> SecondEnsemble | None:
    """Generate and measure an ensemble; None if the dataset is not from a Markov chain.

    Args:
        dataset: The dataset.
        actions: Actions of the first ensemble and of this one.
        step: Step between the actions.
        ensemble: The first ensemble.
        observables: Observables to measure.
        n: Least number of configurations, divided evenly among the chains.
        batch_size: Configurations per batch of measurements.
    """
    assert isinstance(dataset.options, EnsembleDataset)
    made, (base, target) = dataset.options.generate, actions
    if made is None:
        return None
    count = -(-n // made.chains) * made.chains
    chain = made.model_copy(update={"seed": made.seed + _SEED, "n_configurations": count})
    begin, measuring = time.perf_counter(), 0.0
    drawn = GeneratedEnsemble(target.options, target.lattice, chain)
    parts: list[dict[str, Floats]] = []
    of_chain: list[int] = []
    for batch in _split_batches(iter(drawn), batch_size):
        clock = time.perf_counter()
        links = torch.from_numpy(np.stack([one.links for one in batch]))
        # Numbered after the first ensemble's, so that the sources of quarks differ, too.
        number = len(ensemble) + len(of_chain)
        values = observables(links, range(number, number + len(batch)))
        columns = {"base": base(links), "target": target(links), **values}
        parts.append(name_columns({name: x.numpy() for name, x in columns.items()}, step))
        of_chain += [one.chain for one in batch]
        measuring += time.perf_counter() - clock
    seconds = time.perf_counter() - begin - measuring
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    # As for the first: these chains may be too short for an autocorrelation time of their own.
    tau = split_chains(ensemble, np.arange(len(ensemble))).tau_int
    rows = [np.flatnonzero(np.array(of_chain) == k) for k in range(made.chains)]
    return SecondEnsemble(joined, ChainRows(rows, tau), seconds / count)


def _split_batches(drawn: Iterator[Sample], size: int) -> Iterator[list[Sample]]:
    while batch := list(islice(drawn, size)):
        yield batch
