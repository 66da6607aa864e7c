"""Configurations from a flow of the Haar measure: a Markov chain of its proposals.

`samples/ensemble.h5` has the layout of `data.h5`, all in the split `train`. Files for other
programs are `samples/00000.ildg` or `samples/00000.nersc` and so on, which state their action.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any, Final, NamedTuple

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.artifacts.extracts import BULK
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_gauge_flows.data.ensembles.measurements import Measurements
from pipeline_gauge_flows.data.ensembles.origins import Sample
from pipeline_gauge_flows.data.ensembles.storage import make_configuration_fields, write_theory
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.formats import WRITERS, Configuration
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.evaluation.metropolis import Acceptance
from pipeline_gauge_flows.evaluation.series import require_finite
from pipeline_gauge_flows.inference.options import SampleOptions
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.task import make_target_action
from pipeline_gauge_flows.training.samples import HaarSamples

_EPOCH: Final = 1_000_000
"""Epoch of the Haar draws, different from the evaluation's."""


class Proposal(NamedTuple):
    """Configuration drawn by the flow: its number, links (D, V, N, N), and log w."""

    number: int
    links: NDArray[np.complex128]
    log_weight: float


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
    action = make_target_action(run, flow.lattice)
    require_writable(run, options, flow.lattice)
    total = options.thermalisation + options.n_configurations
    drawn = draw_proposals(run, flow, action, total, options.batch_size, ranks)
    if not ranks.is_rank_zero or file is None:
        for _ in drawn:
            pass
        return {}
    test = Acceptance((run.seed, 2))
    kept = islice(_run_chain(drawn, test), options.thermalisation, None)
    written, statistics = _write_files(run, action, options, kept, test)
    group = file.create_group("samples")
    group.attrs[BULK] = True
    for name, values in zip(("log_weight", "number"), zip(*written, strict=True), strict=True):
        group.create_dataset(name, data=np.array(values))
    plaquette = statistics["plaquette"]
    shown = {"plaquette": plaquette["mean"], "plaquette_error": plaquette["error"]}
    summary = {"configurations": len(written), **statistics["origin"], **shown}
    return {**summary, "tau_int": plaquette["tau_int"]}


def require_writable(run: Run, options: SampleOptions, lattice: Lattice) -> None:
    """Check that the formats support configurations of a lattice.

    Raises:
        ValueError: A format does not.
    """
    foreign = lattice.dimension == 4
    holds = {"hdf5": True, "nersc": foreign, "ildg": foreign and lattice.n_colours == 3}
    for name in options.formats:
        if not holds[name]:
            raise ValueError(
                f"{run.experiment}: infer.samples.formats: {name!r} does not support "
                f"SU({lattice.n_colours}) in {lattice.dimension} dimensions; choose hdf5"
            )


def draw_proposals(
    run: Run, flow: Flow, action: EffectiveAction, total: int, batch_size: int, ranks: Ranks
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
            with torch.no_grad():
                moved, log_det = flow(links)
                log_weight = log_det - action(moved)
            own_batch = numbers, moved.cpu().numpy(), log_weight.cpu().numpy()
        for part in ranks.gather(own_batch):
            if part is None or not ranks.is_rank_zero:
                continue
            require_finite(part[2], part[0].start)
            for number, one, weight in zip(*part, strict=True):
                yield Proposal(number, one, float(weight))


def _run_chain(drawn: Iterable[Proposal], test: Acceptance) -> Iterator[Proposal]:
    """Yield the state of a Markov chain after each proposal."""
    state = None
    for proposal in drawn:
        if test.step(proposal.log_weight):
            state = proposal
        assert state is not None, "the first proposal is accepted"
        yield state


def _write_files(
    run: Run,
    action: EffectiveAction,
    options: SampleOptions,
    kept: Iterable[Proposal],
    test: Acceptance,
) -> tuple[list[tuple[float, int]], dict[str, Any]]:
    """Replace the files of an earlier call by those of a Markov chain.

    Returns:
        log w and number of each written proposal, and statistics of the ensemble, JSON-able.
    """
    folder, lattice = run.folder / "samples", action.lattice
    for pattern in ("*.h5", "*.ildg", "*.nersc"):
        for path in folder.glob(pattern):
            path.unlink()
    measured = Measurements(action.options, lattice)
    written: list[tuple[float, int]] = []
    with ExitStack() as stack:
        writer = None
        if "hdf5" in options.formats:
            fields, provenance = make_configuration_fields(lattice), run.make_provenance("infer")
            writer = SampleWriter(folder / "ensemble.h5", "data", provenance, fields)
            stack.enter_context(writer)
        for number, links, log_weight in kept:
            one = Sample(links, 0, "chain-0000", f"flow:metropolis:{number}")
            values = {**one.make_fields(), **measured.add(one)}
            if writer is not None:
                writer.add(values)
            for name in set(options.formats) & WRITERS.keys():
                path = folder / f"{len(written):05d}.{name}"
                WRITERS[name](path, Configuration(lattice, links, action.options))
            written.append((log_weight, number))
        origin = {"method": "metropolis", "acceptance": test.acceptance}
        statistics = {"origin": origin, **measured.summarize()}
        if writer is not None:
            writer.add_column("split", np.zeros(len(written), np.int8))
            write_theory(writer, lattice, action.options, statistics)
    return written, statistics
