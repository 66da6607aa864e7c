"""Measurement of training steps, for `pipeline-core profile`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from pipeline_core.artifacts import store
from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.profiling import report
from pipeline_core.profiling.measure import (
    StepTimer,
    choose_probes,
    find_memory_limit,
    measure_classes,
)
from pipeline_core.profiling.network import describe_link, measure_network, read_link
from pipeline_core.profiling.projection import (
    count_gradient_bytes,
    describe_set,
    project_epochs,
)
from pipeline_core.profiling.steps import collect_totals
from pipeline_core.project.run import Run
from pipeline_core.system.seeds import use_deterministic
from pipeline_core.task import Samples, Sizes, Task
from pipeline_core.training.balance.cost_model import CostModel, fit
from pipeline_core.training.freezing import freeze


def profile_run(run: Run, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Measure training steps of a run's trained model; write `run.profile`.

    Rank 0 does all the work.

    Args:
        run: Its trained model and its samples are read.
        facts: Facts of a plugin about the work of its model, to be written beside; JSON-able.

    Returns:
        The main numbers, see `report.summarize`.

    Raises:
        ValueError: As `measure_steps`, or the experiment does not name sizes to measure.
    """
    options = run.get_section("profile", ProfileOptions)
    if not options.samples:
        raise ValueError(
            f"{run.experiment}: profile.samples names no numbers of samples, so there is nothing "
            "to measure; give some, such as [1, 2, 4, 8, 16, 32]"
        )
    content = write_profile(
        run, lambda ranks: {**(facts or {}), **measure_steps(run, options, ranks.device)}
    )
    return report.summarize(content) if content else {}


def write_profile(run: Run, measure: Callable[[Ranks], dict[str, Any]]) -> dict[str, Any]:
    """Write what a function measures on rank 0 as `run.profile`; return it, and {} on others."""
    with connect_ranks(run.device, run.state) as ranks:
        if not ranks.is_rank_zero:
            return {}
        content = measure(ranks)
    store.write_json(run.profile, content, run.make_provenance("profile"))
    return content


def measure_steps(run: Run, options: ProfileOptions, device: torch.device) -> dict[str, Any]:
    """Measure training steps of a run's model, and project epochs from them.

    Args:
        run: Its trained model and its samples are read; nothing is written.
        options: Section `profile`.
        device: Device to measure on.

    Returns:
        device, threads, precision, gradient_bytes; steps, see `steps`; saturation,
        growth and capacity, see `report`; cost_model, the coefficients and relative_error, the
        median; and with a projection network, projection and, for drawn sizes, set, see
        `projection.describe_set`. JSON-able.

    Raises:
        ValueError: There is nothing to measure, the memory does not hold a single sample, or the
            network cannot be measured.
    """
    training = run.get_section("train", TrainOptions)
    task = load_trained_task(run, device)
    freeze(task.module, training.freeze, run.model_info.parts)
    samples = task.samples("train")
    sizes = _read_sizes(run, task, samples)
    limit = find_memory_limit(options, device)
    with use_deterministic(training.deterministic):
        timer = StepTimer(task, training, device)
        probes = choose_probes(task, sizes, options.classes)
        records, limits = measure_classes(timer, samples, probes, options, limit)
    if not records:
        raise ValueError(
            f"{run.experiment}: profile: the memory does not hold a step of "
            f"{min(options.samples)} of the smallest samples; free memory, or name fewer samples"
        )
    totals = collect_totals(probes, records)
    seconds = np.array([record["seconds"] for record in records])
    model = fit(totals, seconds)
    content = {
        "device": device.type,
        "threads": torch.get_num_threads(),
        "precision": training.precision,
        "gradient_bytes": count_gradient_bytes(task),
        "steps": records,
        "saturation": report.find_saturation(records),
        "growth": report.find_growth(records),
        "capacity": report.find_capacity(probes, records, limits, limit),
        "cost_model": report.describe_fit(model, totals, seconds),
    }
    if options.projection is not None:
        content |= _project(run, options, task, sizes, model, device)
    return content


def _read_sizes(run: Run, task: Task, samples: Samples) -> Sizes:
    """Check that there is work to measure; return the sizes of the training samples."""
    if not len(samples):
        raise ValueError(f"{run.experiment}: profile: the split 'train' is empty")
    if not task.objective.weights:
        raise ValueError(
            f"{run.experiment}: profile: train.loss names no field, so there is no training "
            "step to measure"
        )
    sizes = samples.sizes()
    if "atom" not in sizes:
        raise ValueError(
            f"{run.experiment}: profile: the samples of plugin {run.model_info.name!r} have "
            f"no atoms to be sorted by, only {', '.join(sizes)}; leave profile.samples out"
        )
    return sizes


def _project(
    run: Run,
    options: ProfileOptions,
    task: Task,
    sizes: Sizes,
    model: CostModel,
    device: torch.device,
) -> dict[str, Any]:
    wanted = options.projection
    assert wanted is not None
    given = wanted.network
    network = measure_network(device) if given is None else describe_link(given)
    add = partial(read_link(network).time_ring, count_gradient_bytes(task))
    partition = run.get_section("partition", PartitionOptions)
    batch_by = run.get_section("train", TrainOptions).batch_by
    records = project_epochs(task, sizes, wanted, partition, batch_by, model, add, run.seed)
    drawn = describe_set(sizes, wanted.sizes, run.seed)
    return {"network": network, "projection": records, **({"set": drawn} if drawn else {})}
