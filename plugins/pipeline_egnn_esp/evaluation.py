"""Errors of predicted matrices: of their elements by distance, and of their levels.

`run.predictions` holds, for each sample, the blocks of one of each hermitian pair, as `data.h5` has
them, with their length, the fields `<target>_label`, `<target>_predicted` and `<target>_two_centre`
of kind entry and, of each sample, `energy_zero`: what was subtracted from the Hamiltonian, in units
of the overlap. `run.metrics` has the layout of the engine, with the quantities `<target>`,
`<target>_on_site` and `<target>_off_site`, in which both of each hermitian pair count, and the key
`matrices`:

| key           | content                                                                        |
|---------------|--------------------------------------------------------------------------------|
| `target`      | what was learned                                                               |
| `unit`        | of errors                                                                      |
| `cutoff`      | of the model, Å; blocks beyond are predicted as zero                           |
| `basis`       | degrees of the shells of each element, in the order of rows and columns        |
| `splits`      | by split, see `Comparison.report`                                              |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_core import store
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.evaluation.evaluate import metrics_header
from pipeline_core.evaluation.predict import Window, predictions
from pipeline_core.evaluation.records import Texts, origins
from pipeline_core.evaluation.trained import trained_task
from pipeline_core.fields import FIELDS, SPLITS, Field
from pipeline_core.run import Run
from pipeline_core.samples import SampleWriter
from pipeline_core.task import Task
from pipeline_egnn_esp.baselines import TwoCentre, two_centre_of
from pipeline_egnn_esp.basis import Basis
from pipeline_egnn_esp.comparison import Comparison, Structure, require_electrons
from pipeline_egnn_esp.options import ESPEvaluateOptions, ESPOptions
from pipeline_egnn_esp.partition_options import ESPPartitionOptions
from pipeline_egnn_esp.samples import UNITS, Labelled, MatrixSamples
from pipeline_egnn_esp.scaling import ScaledNetwork
from pipeline_egnn_esp.together import Together

Floats = NDArray[np.float64]


def evaluate_matrices(run: Run) -> dict[str, Any]:
    """Predict every sample of the chosen splits; write `run.metrics` and `run.predictions`.

    Called on every rank: they share the structures, or with `partition.parts: graph` the atoms of
    each; rank 0 does the rest.

    Returns:
        MAE of on-site and off-site elements and of levels, by split; on rank 0.

    Raises:
        ValueError: There is nothing to compare, the model does not belong to the run, or it
            predicts something that is not finite.
    """
    section = run.section("evaluate", ESPEvaluateOptions)
    options = run.section("model", ESPOptions)
    with connect_ranks(run.device, run.state) as ranks:
        task = trained_task(run, ranks.device)
        require_electrons(_basis(task), section.electrons)
        samples = {split: task.samples(split) for split in section.splits}
        if not any(map(len, samples.values())):
            raise ValueError(
                f"{run.experiment}: evaluate.splits: no samples in "
                f"{' and '.join(samples) or 'no split'}; name other splits, or divide the dataset "
                "differently"
            )
        texts = origins(run, {split: len(own) for split, own in samples.items()})
        found = {}
        with _writer(run, options.target) if ranks.is_rank_zero else nullcontext() as writer:
            baseline = _baseline(task) if ranks.is_rank_zero else None
            for split in samples:
                comparison = Comparison(options, section)
                for structure, text in _structures(run, task, split, texts[split], baseline, ranks):
                    comparison.add(structure, text.get("group"))
                    assert writer is not None
                    writer.add(_record(structure, options.target, split, text))
                found[split] = comparison
        if not ranks.is_rank_zero:
            return {}
        store.write_json(run.metrics, _content(run, task, options, found))
        return {split: comparison.summary() for split, comparison in found.items()}


def _structures(
    run: Run,
    task: Task,
    split: str,
    texts: Mapping[str, Texts],
    baseline: TwoCentre | None,
    ranks: Ranks,
) -> Iterator[tuple[Structure, dict[str, str]]]:
    """Yield each sample with its predictions, and what the data say of it in words, on rank 0."""
    samples = task.samples(split)
    assert isinstance(samples, MatrixSamples)
    in_parts = run.section("partition", ESPPartitionOptions).parts == "graph"
    found = _by_all(run, task, samples, ranks) if in_parts else _by_each(task, samples, ranks)
    for index, (labelled, predicted) in enumerate(found):
        assert baseline is not None
        batch = samples.batch([index])
        own = baseline.node_blocks(batch["atomic_numbers"]).numpy()
        known = labelled.entries(own, baseline.edge_blocks(batch).numpy())
        words = {name: str(values[index]) for name, values in texts.items()}
        both = {"model": predicted, "two_centre": known}
        yield Structure(labelled.matrix, labelled.energy_zero, both), words


def _by_each(task: Task, samples: MatrixSamples, ranks: Ranks) -> Iterator[tuple[Labelled, Floats]]:
    """Yield on rank 0 each sample and its predicted elements; ranks predict whole structures."""
    for window in predictions(task, samples, None, ranks):
        for number in range(len(window) if ranks.is_rank_zero else 0):
            labelled = samples.labelled(window.start + number)
            yield labelled, labelled.entries(*_blocks(window, number))


def _by_all(
    run: Run, task: Task, samples: MatrixSamples, ranks: Ranks
) -> Iterator[tuple[Labelled, Floats]]:
    """Yield on rank 0 each sample and its predicted elements; each rank predicts its part."""
    assert isinstance(task.module, ScaledNetwork)
    together = Together(run, task.module, ranks)
    for index in range(len(samples)):
        labelled = samples.labelled(index)
        predicted = together.entries(labelled.matrix)
        if predicted is None:
            continue
        if not np.isfinite(predicted).all():
            raise ValueError(
                f"the model predicts elements that are not finite for sample {index} of the split; "
                "check the sample, or train with a lower learning rate"
            )
        yield labelled, predicted


def _blocks(window: Window, number: int) -> tuple[Floats, Floats]:
    """Return the predicted blocks of the atoms and of the edges of one sample."""
    found = []
    for name, kind in (("node_blocks", "atom"), ("edge_blocks", "edge")):
        start, stop = window.batch[f"{kind}_offsets"][number : number + 2].tolist()
        found.append(window.outputs[name][start:stop].double().numpy())
    return found[0], found[1]


def _basis(task: Task) -> Basis:
    assert isinstance(task.module, ScaledNetwork)
    return task.module.network.basis


def _baseline(task: Task) -> TwoCentre:
    """Return tables fitted to the training structures: those of the model, where it uses them."""
    module = task.module
    assert isinstance(module, ScaledNetwork)
    if module.uses_edges:
        return deepcopy(module.two_centre).cpu()
    samples = task.samples("train")
    batches = (samples.batch([number]) for number in range(len(samples)))
    return two_centre_of(module.two_centre.basis, module.two_centre.cutoff, batches)


def _writer(run: Run, target: str) -> SampleWriter:
    unit = UNITS[target]
    own = [
        Field("energy_zero", (), "eV", "sample", "f8", "Subtracted from H, in units of S."),
        Field("block_atoms", (2,), "1", "block", "i4", "Atoms of rows and columns.", "atom"),
        Field("block_shift", (3,), "1", "block", "i2", "Cell image of the second."),
        Field("block_length", (), "Å", "block", "f4", "Distance of the two."),
        Field(f"{target}_label", (), unit, "entry", "f4", "Of the data.", label=True),
        Field(f"{target}_predicted", (), unit, "entry", "f4", "By the model."),
        Field(f"{target}_two_centre", (), unit, "entry", "f4", "By distances alone."),
    ]
    shared = [FIELDS[name] for name in ("split", "group", "source", "atomic_numbers")]
    return SampleWriter(run.predictions, "predictions", run.provenance("evaluate"), shared + own)


def _record(
    structure: Structure, target: str, split: str, texts: Mapping[str, str]
) -> dict[str, Any]:
    matrix = structure.matrix
    return {
        "split": np.asarray(SPLITS.index(split)),
        "group": np.asarray(texts["group"], dtype=object),
        "source": np.asarray(texts["source"], dtype=object),
        "atomic_numbers": matrix.structure.atomic_numbers,
        "energy_zero": np.asarray(structure.energy_zero),
        "block_atoms": matrix.block_atoms,
        "block_shift": matrix.block_shift,
        "block_length": matrix.lengths,
        f"{target}_label": getattr(matrix, target),
        f"{target}_predicted": structure.predicted["model"],
        f"{target}_two_centre": structure.predicted["two_centre"],
    }


def _content(
    run: Run, task: Task, options: ESPOptions, found: Mapping[str, Comparison]
) -> dict[str, Any]:
    return {
        **metrics_header(run, task),
        "splits": {
            split: {
                "n_samples": comparison.n_samples,
                "quantities": comparison.quantities(),
                "groups": comparison.groups(),
            }
            for split, comparison in found.items()
        },
        "matrices": {
            "target": options.target,
            "unit": UNITS[options.target],
            "cutoff": options.cutoff,
            "basis": {symbol: list(shells) for symbol, shells in _basis(task).shells.items()},
            "splits": {split: comparison.report() for split, comparison in found.items()},
        },
    }
