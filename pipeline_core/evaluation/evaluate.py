"""The stage `evaluate`: a trained model against the labels of held-out samples."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from pipeline_core import store
from pipeline_core.config.sections import EvaluateOptions, PartitionOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.evaluation.breakdown import Breakdown
from pipeline_core.evaluation.predict import predictions
from pipeline_core.evaluation.records import Texts, origins, prediction_fields, write_window
from pipeline_core.evaluation.trained import trained_task
from pipeline_core.run import Run
from pipeline_core.samples import SampleWriter
from pipeline_core.task import Samples, Task


def evaluate_run(run: Run) -> dict[str, Any]:
    """Predict every sample of the chosen splits; write `run.metrics` and `run.predictions`.

    Called on every rank: they share the work, rank 0 writes.

    Returns:
        MAE of every quantity, by split.

    Raises:
        ValueError: There is nothing to compare, the model does not belong to the run, or it
            predicts something that is not finite.
    """
    options = run.section("evaluate", EvaluateOptions)
    with connect_ranks(run.device, run.state) as ranks:
        task = trained_task(run, ranks.device)
        samples: dict[str, Samples] = {s: task.samples(s) for s in options.splits}
        texts = origins(run, {split: len(samples[split]) for split in samples})
        with _writer(run, task, samples, texts) if ranks.is_rank_zero else nullcontext() as writer:
            report = {
                split: _compared(run, task, split, samples[split], texts[split], ranks, writer)
                for split in samples
            }
        if ranks.is_rank_zero:
            store.write_json(run.metrics, {**metrics_header(run, task), "splits": report})
    return {split: _errors(content["quantities"]) for split, content in report.items()}


def _compared(
    run: Run,
    task: Task,
    split: str,
    samples: Samples,
    texts: Mapping[str, Texts],
    ranks: Ranks,
    writer: SampleWriter | None,
) -> dict[str, Any]:
    """Return the metrics of a split, on rank 0, having written its predictions."""
    section = run.sections["partition"]
    capacity = section.capacity if isinstance(section, PartitionOptions) else None
    breakdown = Breakdown(task.quantities, texts.get("group"))
    for window in predictions(task, samples, capacity, ranks):
        if writer is not None:
            breakdown.add(window)
            write_window(writer, window, task.quantities, split, texts)
    return breakdown.report()


def _writer(
    run: Run, task: Task, samples: Mapping[str, Samples], texts: Mapping[str, Mapping[str, Texts]]
) -> SampleWriter:
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
    fields = prediction_fields(samples[split].batch([0]), task.quantities, list(texts[split]))
    return SampleWriter(run.predictions, "predictions", run.provenance("evaluate"), fields)


def metrics_header(run: Run, task: Task) -> dict[str, Any]:
    """Return what a file of metrics says before its splits: whose it is, and its size."""
    provenance = run.provenance("evaluate")
    return {
        "experiment": run.experiment,
        "variant": run.variant,
        "plugin": run.model_info.name,
        "fingerprint": provenance["fingerprint"],
        "n_parameters": sum(p.numel() for p in task.module.parameters()),
        "provenance": provenance,
    }


def _errors(quantities: Mapping[str, Any]) -> dict[str, str]:
    """Return what people read: MAE with its unit."""
    return {
        f"MAE {name}": f"{metrics['mae']:.4g} {metrics['unit']}"
        for name, metrics in quantities.items()
        if metrics["count"]
    }
