"""Evaluation: errors of predicted matrix elements by distance, and of energy levels.

`run.predictions` holds, for each sample, the blocks of one of each hermitian pair, as `data.h5` has
them, with their length, the fields `<target>_label`, `<target>_predicted` and `<target>_two_centre`
of kind entry and, of each sample, `energy_zero`: what was subtracted from the Hamiltonian, in units
of the overlap. `run.metrics` has the layout of the engine, with the quantities `<target>`,
`<target>_on_site` and `<target>_off_site`, in which both of each hermitian pair count, and the key
`matrices`:

| key           | content                                                                        |
|---------------|--------------------------------------------------------------------------------|
| `target`      | the learned quantity                                                           |
| `unit`        | of errors                                                                      |
| `cutoff`      | of the graph, Å; blocks beyond are predicted as zero                           |
| `basis`       | degrees of the shells of each element, in the order of rows and columns        |
| `splits`      | by split, see `Comparison.report`                                              |

and the key `training`: `structures`, `atoms` of the largest one, and optimizer `steps`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domains import DividedSplits
from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.evaluation.evaluate import make_metrics_header
from pipeline_core.evaluation.predict import Window, predict_samples
from pipeline_core.evaluation.records import read_origins
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.fields import FIELDS, SPLITS, Field
from pipeline_core.figures.results import read_history
from pipeline_core.project.run import Run
from pipeline_core.task import Task
from pipeline_core.training.balance.partitioning import read_shares
from pipeline_core.training.division import make_sampler
from pipeline_core.training.out_of_memory import report_out_of_memory
from pipeline_egnn_esp.data.baselines import TwoCentre, fit_two_centre
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.samples import UNITS, MatrixSamples
from pipeline_egnn_esp.evaluation.comparison import (
    Comparison,
    PredictedMatrix,
    join_blocks,
    require_electrons,
)
from pipeline_egnn_esp.evaluation.own_blocks import OwnPredictor, collect_pieces
from pipeline_egnn_esp.inference.options import ESPInferOptions
from pipeline_egnn_esp.model.scaling import ScaledNetwork
from pipeline_egnn_esp.options import ESPEvaluateOptions, ESPOptions

Floats = NDArray[np.float64]


def evaluate_matrices(run: Run) -> dict[str, Any]:
    """Predict every sample of the chosen splits; write `run.metrics` and `run.predictions`.

    Called on every rank. By samples, ranks predict whole structures, which rank 0 compares. With
    `partition.parts: graph` (domain decomposition) every rank compares the blocks of its own atoms,
    sums of errors are reduced, and rank 0 collects the written blocks, some at a time. Levels
    need whole matrices, which rank 0 holds for structures of at most `evaluate.dense_orbitals`.

    Returns:
        MAE of on-site and off-site elements and of levels, by split; on rank 0.

    Raises:
        ValueError: There is nothing to compare, the model does not belong to the run, or it
            predicts something that is not finite.
    """
    section = run.get_section("evaluate", ESPEvaluateOptions)
    options = run.get_section("model", ESPOptions)
    with connect_ranks(run.device, run.state) as ranks:
        task = load_trained_task(run, ranks.device)
        require_electrons(_get_basis(task), section.electrons)
        samples = {split: task.samples(split) for split in section.splits}
        if not any(map(len, samples.values())):
            raise ValueError(
                f"{run.experiment}: evaluate.splits: no samples in "
                f"{' and '.join(samples) or 'no split'}; name other splits, or divide the dataset "
                "differently"
            )
        texts = read_origins(run, {split: len(own) for split, own in samples.items()})
        comparisons: dict[str, Comparison] = {}
        with _open_writer(run, options.target) if ranks.is_rank_zero else nullcontext() as writer:
            predict = _make_predictor(run, task, ranks)
            for split, own in samples.items():
                assert isinstance(own, MatrixSamples)
                comparison = Comparison(options, section)
                for index, structure in enumerate(predict(own)):
                    words = {name: str(values[index]) for name, values in texts[split].items()}
                    comparison.add(structure.own, words.get("group"))
                    if comparison.admit_levels(structure.own.matrix):
                        pieces = [*structure.collect()]
                        if ranks.is_rank_zero:
                            place = f"levels of structure {index + 1} of {split}"
                            with ranks.announce(place), report_out_of_memory(_describe_levels):
                                comparison.add_levels(join_blocks(pieces))
                    records = _make_records(structure.collect(), options.target, split, words)
                    if writer is None:
                        assert not [*records]
                    else:
                        writer.add_in_parts(records)
                comparison.add_ranks(ranks)
                comparisons[split] = comparison
        if not ranks.is_rank_zero:
            return {}
        store.write_json(run.metrics, _make_content(run, task, options, comparisons))
        return {split: comparison.summarize() for split, comparison in comparisons.items()}


def _describe_levels() -> str:
    return "for levels of a whole structure; lower evaluate.dense_orbitals to leave them out"


@dataclass(frozen=True)
class _Predicted:
    """Predictions of one structure on one rank.

    Attributes:
        own: Blocks that this rank compares.
        collect: Yields the blocks of all ranks in order on rank 0; all ranks iterate over it.
    """

    own: PredictedMatrix
    collect: Callable[[], Iterator[PredictedMatrix]]


def _make_predictor(
    run: Run, task: Task, ranks: Ranks
) -> Callable[[MatrixSamples], Iterator[_Predicted]]:
    """Return a function that predicts the structures of a split, by samples or by own atoms."""
    if run.get_section("partition", PartitionOptions).parts != "graph":
        capacity = run.get_section("partition", PartitionOptions).capacity
        return partial(_predict_whole, task, ranks, capacity)
    assert isinstance(task.module, ScaledNetwork)
    work_bytes = run.get_section("infer", ESPInferOptions).work_bytes
    divided = DividedSplits(run, task, ranks)
    predictor = OwnPredictor(task.module, _make_baseline(task), divided, ranks, work_bytes)
    return partial(_predict_own, predictor, ranks)


def _predict_whole(
    task: Task, ranks: Ranks, capacity: float | None, samples: MatrixSamples
) -> Iterator[_Predicted]:
    """Yield each sample on rank 0; ranks predict whole structures."""
    baseline = _make_baseline(task) if ranks.is_rank_zero else None
    for window in predict_samples(task, samples, ranks, capacity=capacity):
        for number in range(len(window)):
            assert baseline is not None
            index = window.start + number
            labelled, batch = samples.read_labelled(index), samples.batch([index])
            own = baseline.predict_node_blocks(batch["atomic_numbers"]).numpy()
            both = {
                "model": labelled.gather_entries(*_read_blocks(window, number)),
                "two_centre": labelled.gather_entries(
                    own, baseline.predict_edge_blocks(batch).numpy()
                ),
            }
            blocks = PredictedMatrix(labelled.matrix, labelled.energy_zero, both)
            yield _Predicted(blocks, partial(iter, [blocks]))


def _predict_own(
    predictor: OwnPredictor, ranks: Ranks, samples: MatrixSamples
) -> Iterator[_Predicted]:
    """Yield each sample on every rank; each predicts the blocks of its own atoms."""
    for index in range(len(samples)):
        with report_out_of_memory(partial(_describe_own, index, ranks)):
            own = predictor.predict(samples, index)
        yield _Predicted(own.blocks, partial(collect_pieces, own, ranks))


def _describe_own(index: int, ranks: Ranks) -> str:
    return (
        f"in the prediction of the sample {index} of the split on rank {ranks.rank}, which has a "
        "part of its atoms; use more ranks, or lower infer.work_bytes"
    )


def _read_blocks(window: Window, number: int) -> tuple[Floats, Floats]:
    """Return the predicted blocks of the atoms and of the edges of one sample."""
    blocks = []
    for name, kind in (("node_blocks", "atom"), ("edge_blocks", "edge")):
        start, stop = window.batch[f"{kind}_offsets"][number : number + 2].tolist()
        blocks.append(window.outputs[name][start:stop].double().numpy())
    return blocks[0], blocks[1]


def _get_basis(task: Task) -> Basis:
    assert isinstance(task.module, ScaledNetwork)
    return task.module.network.basis


def _make_baseline(task: Task) -> TwoCentre:
    """Return tables fitted to the training structures, from the model if it uses them."""
    module = task.module
    assert isinstance(module, ScaledNetwork)
    if module.uses_edges:
        return deepcopy(module.two_centre).cpu()
    samples = task.samples("train")
    assert isinstance(samples, MatrixSamples)
    tables = module.two_centre
    return fit_two_centre(tables.basis, tables.cutoff, samples.read_pieces())


def _open_writer(run: Run, target: str) -> SampleWriter:
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
    return SampleWriter(
        run.predictions, "predictions", run.make_provenance("evaluate"), shared + own
    )


def _make_records(
    pieces: Iterable[PredictedMatrix], target: str, split: str, texts: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the fields of a sample; the first item has the fields of the sample and its atoms."""
    for number, piece in enumerate(pieces):
        matrix = piece.matrix
        record = {
            "block_atoms": matrix.block_atoms,
            "block_shift": matrix.block_shift,
            "block_length": matrix.lengths,
            f"{target}_label": getattr(matrix, target),
            f"{target}_predicted": piece.predicted["model"],
            f"{target}_two_centre": piece.predicted["two_centre"],
        }
        if number == 0:
            record |= {
                "split": np.asarray(SPLITS.index(split)),
                "group": np.asarray(texts["group"], dtype=object),
                "source": np.asarray(texts["source"], dtype=object),
                "atomic_numbers": matrix.structure.atomic_numbers,
                "energy_zero": np.asarray(piece.energy_zero),
            }
        yield record


def _describe_training(run: Run, task: Task) -> dict[str, int]:
    """Return the size of the training set and the number of steps; see the module docstring."""
    samples, history = task.samples("train"), read_history(run)
    shares = read_shares(run.partition, "train", len(samples))
    sampler = make_sampler(shares, run.get_section("train", TrainOptions), run.seed)
    # Windows are steps, for any number of ranks.
    n_epochs = history[-1]["epoch"] if history else 0
    return {
        "structures": len(samples),
        "atoms": int(samples.sizes()["atom"].max(initial=0)),
        "steps": sum(len(sampler.plan_epoch(epoch, 1)) for epoch in range(n_epochs)),
    }


def _make_content(
    run: Run, task: Task, options: ESPOptions, comparisons: Mapping[str, Comparison]
) -> dict[str, Any]:
    return {
        **make_metrics_header(run, task),
        "splits": {
            split: {
                "n_samples": comparison.n_samples,
                "quantities": comparison.report_quantities(),
                "groups": comparison.report_groups(),
            }
            for split, comparison in comparisons.items()
        },
        "training": _describe_training(run, task),
        "matrices": {
            "target": options.target,
            "unit": UNITS[options.target],
            "cutoff": run.get_section("graph", GraphOptions).cutoff,
            "basis": {symbol: list(shells) for symbol, shells in _get_basis(task).shells.items()},
            "splits": {split: comparison.report() for split, comparison in comparisons.items()},
        },
    }
