"""The stage `evaluate`: a trained model against the labels of held-out samples."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.config.sections import EvaluateOptions, PartitionOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.evaluation.breakdown import Breakdown
from pipeline_core.evaluation.predict import Window, predict_samples
from pipeline_core.evaluation.records import (
    Texts,
    make_prediction_fields,
    read_origins,
    write_window,
)
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.project.run import Run
from pipeline_core.task import Samples, Task
from pipeline_core.training.micro_batches import make_divider


def evaluate_run(run: Run) -> dict[str, Any]:
    """Predict every sample of the chosen splits; write `run.metrics` and `run.predictions`.

    Called on every rank: they share samples, or with `partition.parts: graph` the atoms of each;
    rank 0 compares and writes. See `predict_samples` for its memory. The first member of a
    committee calibrates it, with the predictions of the others.

    Returns:
        MAE of every quantity, by split; for direct forces also their deviation from a gradient.

    Raises:
        ValueError: There is nothing to compare, the model does not belong to the run, a prediction
            is not finite, or memory does not suffice.
    """
    options = run.get_section("evaluate", EvaluateOptions)
    with connect_ranks(run.device, run.state) as ranks:
        task = load_trained_task(run, ranks.device)
        samples: dict[str, Samples] = {s: task.samples(s) for s in options.splits}
        texts = read_origins(run, {split: len(samples[split]) for split in samples})
        section = run.sections["partition"]
        is_divided = isinstance(section, PartitionOptions) and section.parts == "graph"
        capacity = section.capacity if isinstance(section, PartitionOptions) else None
        divided = make_divider(run, task, ranks) if is_divided else None
        report = {}
        measure = run.registry.select_hook("measure", run.model_info.name)
        with (
            _open_writer(run, task, samples, texts) if ranks.is_rank_zero else nullcontext()
        ) as writer:
            for split, own in samples.items():
                load_part = divided.divide(split, own) if divided else None
                windows = predict_samples(task, own, ranks, capacity=capacity, load_part=load_part)
                groups = texts[split].get("group")
                breakdown = Breakdown(task.quantities, groups, _list_heads(task))
                report[split] = _compare(windows, breakdown, task, split, texts[split], writer)
                if ranks.is_rank_zero and not is_divided:
                    for measured in measure(run=run, task=task, samples=own):
                        report[split] |= measured
        if ranks.is_rank_zero:
            content = {**make_metrics_header(run, task), "splits": report}
            calibrate = run.registry.select_hook("calibrate", run.model_info.name)
            if run.members and (committee := calibrate(run=run)) is not None:
                content["committee"] = committee
            store.write_json(run.metrics, content)
    return {split: _list_errors(content) for split, content in report.items()}


def _compare(
    windows: Iterable[Window],
    breakdown: Breakdown,
    task: Task,
    split: str,
    texts: Mapping[str, Texts],
    writer: SampleWriter | None,
) -> dict[str, Any]:
    """Write the predictions of a split, return its metrics; only rank 0 has windows."""
    for window in windows:
        assert writer is not None
        breakdown.add(window)
        write_window(writer, window, task.quantities, split, texts)
    return breakdown.report()


@contextmanager
def _open_writer(
    run: Run, task: Task, samples: Mapping[str, Samples], texts: Mapping[str, Mapping[str, Texts]]
) -> Iterator[SampleWriter]:
    if not task.quantities:
        raise ValueError(
            f"{run.experiment}: no prediction of plugin {run.model_info.name!r} has labels, so "
            "nothing can be compared; import labels, or let the plugin implement evaluate(run)"
        )
    split = next((split for split in samples if len(samples[split])), None)
    if split is None:
        raise ValueError(
            f"{run.experiment}: evaluate.splits: no samples in "
            f"{' and '.join(samples) or 'no split'}; name other splits, or divide the dataset "
            "differently"
        )
    kinds, heads = samples[split].sizes(), _list_heads(task)
    fields = make_prediction_fields(kinds, task.quantities, list(texts[split]), heads)
    provenance = run.make_provenance("evaluate")
    with SampleWriter(run.predictions, "predictions", provenance, fields) as writer:
        if heads:
            writer.attributes["heads"] = json.dumps(heads)
        yield writer


def _list_heads(task: Task) -> Sequence[str]:
    """Return the names of the heads of a model; empty for a single head."""
    heads: Sequence[str] = getattr(task.module, "head_names", ())
    return heads


def make_metrics_header(run: Run, task: Task) -> dict[str, Any]:
    """Return the header of a file of metrics, before its splits: the model and its size."""
    provenance = run.make_provenance("evaluate")
    return {
        "experiment": run.experiment,
        "variant": run.variant,
        "plugin": run.model_info.name,
        "fingerprint": provenance["fingerprint"],
        "n_parameters": sum(p.numel() for p in task.module.parameters()),
        "provenance": provenance,
    }


def _list_errors(report: Mapping[str, Any]) -> dict[str, str]:
    """Return a summary of a split: MAE with units, and deviation of forces from a gradient."""
    tables = {"": report["quantities"]}
    tables |= {f" of {head}": table for head, table in report.get("heads", {}).items()}
    errors = {
        f"MAE {name}{of_head}": f"{metrics['mae']:.4g} {metrics['unit']}"
        for of_head, table in tables.items()
        for name, metrics in table.items()
        if metrics["count"]
    }
    measured = report.get("conservation", {})
    return errors | {f"{name} of the forces": f"{value:.2g}" for name, value in measured.items()}
