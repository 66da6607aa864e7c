"""Configurations from a flow of the Haar measure: a Markov chain of its proposals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import h5py
import numpy as np
import torch

from pipeline_core.artifacts.extracts import BULK
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_gauge_flows.data.actions import WholeAction
from pipeline_gauge_flows.data.fermions.effective import make_action
from pipeline_gauge_flows.evaluation.metropolis import Acceptance
from pipeline_gauge_flows.inference.files import Files, Proposal, require_writable
from pipeline_gauge_flows.inference.options import SampleOptions
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.model.sampling import push
from pipeline_gauge_flows.task import read_target_action
from pipeline_gauge_flows.training.samples import HaarSamples

_EPOCH: Final = 1_000_000
"""Epoch of the Haar draws, different from the evaluation's."""


def write_samples(
    run: Run, flow: Flow, options: SampleOptions, ranks: Ranks, file: h5py.File | None
) -> dict[str, Any]:
    """Draw configurations on all ranks, and write them on rank 0.

    Args:
        run: The run.
        flow: The flow.
        options: Number and formats.
        ranks: The ranks, which share the work.
        file: `run.inference` on rank 0, which gets the group `samples`: `log_weight` of the
            written configurations, and `number` of the proposal of each.

    Returns:
        Summary for the screen, on rank 0.

    Raises:
        ValueError: A format does not support the lattice, or a weight is not finite.
    """
    action = make_action(read_target_action(run), flow.lattice)
    require_writable(run, options, flow.lattice)
    total = options.thermalisation + options.n_configurations
    drawn = draw_proposals(run, flow, action, total, options.batch_size, ranks)
    if not ranks.is_rank_zero or file is None:
        for _ in drawn:
            pass
        return {}
    chain = _Chain(drawn, (run.seed, 2))
    with Files(run, action, options) as files:
        kept = islice(chain, options.thermalisation, None)
        written = [(one.log_weight, one.number) for one in map(files.add, kept)]
        facts = {"method": "metropolis", "acceptance": chain.acceptance}
        summary = files.finish(facts)
    group = file.create_group("samples")
    group.attrs[BULK] = True
    for name, values in zip(("log_weight", "number"), zip(*written, strict=True), strict=True):
        group.create_dataset(name, data=np.array(values))
    return {"configurations": len(written), **facts, **summary}


def draw_proposals(
    run: Run, flow: Flow, action: WholeAction, total: int, batch_size: int, ranks: Ranks
) -> Iterator[Proposal]:
    """Yield configurations of a flow in order on rank 0; other ranks draw and yield nothing.

    Raises:
        ValueError: A weight is not finite.
    """
    samples = HaarSamples(flow.lattice, total, run.seed, "test", torch.complex128, _EPOCH)
    starts = range(0, total, batch_size)
    for begin in range(0, len(starts), ranks.size):
        own = starts[begin : begin + ranks.size][ranks.rank :][:1]
        own_batch = None
        if len(own):
            numbers = range(own[0], min(own[0] + batch_size, total))
            links = samples.batch(numbers)["base_links"].to(ranks.device)
            made = push(flow, links, action)
            own_batch = numbers, made.links.cpu().numpy(), made.log_weight.cpu().numpy()
        for part in ranks.gather(own_batch):
            if part is None or not ranks.is_rank_zero:
                continue
            for number, one, log_weight in zip(*part, strict=True):
                if not np.isfinite(log_weight):
                    raise ValueError(
                        f"{run.experiment}: the weight of configuration {number} is not finite; "
                        "check the action, or train with a lower learning rate"
                    )
                yield Proposal(number, one, float(log_weight))


class _Chain:
    """Markov chain of proposals, with its state after each of them.

    Args:
        drawn: Proposals.
        seed: Seed of the acceptance tests.
    """

    def __init__(self, drawn: Iterator[Proposal], seed: tuple[int, ...]) -> None:
        self._drawn, self._test = drawn, Acceptance(seed)
        self._steps, self._moves = 0, 0

    def __iter__(self) -> Iterator[Proposal]:
        """Yield the state of the chain after each proposal."""
        state = None
        for proposal in self._drawn:
            self._steps += 1
            if self._test.step(proposal.log_weight):
                self._moves += 1
                state = proposal
            assert state is not None, "the first proposal is accepted"
            yield state

    @property
    def acceptance(self) -> float:
        """Fraction of accepted proposals, without the first."""
        return (self._moves - 1) / max(1, self._steps - 1)
