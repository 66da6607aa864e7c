"""Task of interatomic potentials: training and evaluation on data and graphs of the engine."""

import json
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from ase.data import atomic_numbers, chemical_symbols
from numpy.typing import NDArray

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.graphs import build_graph, list_graph_fields
from pipeline_atoms.potential.potential import Potential
from pipeline_atoms.potential.start_errors import explain_start
from pipeline_atoms.structure import INPUTS, Structure
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.batch import Batch, collate
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run
from pipeline_core.task import Quantity, Sizes, Task
from pipeline_core.training.objective import LabelObjective


def open_split(
    run: Run, split: str, fields: Iterable[str], *, preload: bool = True
) -> tuple[SampleFile, SampleFile, NDArray[np.int64]]:
    """Open the data and the graphs of a run.

    Args:
        run: The run with the artifacts.
        split: Name of the split.
        fields: Fields of the data to read.
        preload: Whether small files are read at once.

    Returns:
        Data, graphs, and the numbers of the samples of the split, (n_samples,).

    Raises:
        ValueError: The graphs are of other data.
    """
    data = SampleFile(run.data, "data", fields, preload=preload)
    names = [field.name for field in list_graph_fields(run.get_section("graph", GraphOptions))]
    graph = SampleFile(run.graph, "graph", names, preload=preload, beside=data)
    if len(data) != len(graph):
        raise ValueError(
            f"{run.graph}: holds {len(graph)} graphs for the {len(data)} samples of {run.data}; "
            "run the stage 'graph' again"
        )
    return data, graph, np.flatnonzero(data.read_column("split") == SPLITS.index(split))


class GraphSamples:
    """Samples of one split: data with their graphs.

    Args:
        run: The run with the artifacts to read.
        split: Name of the split.
        labels: Label fields to read.
        dtype: Type of floating-point tensors.
        heads: Names of the heads of the model, if it has several.
    """

    def __init__(
        self,
        run: Run,
        split: str,
        labels: Sequence[str],
        dtype: torch.dtype,
        heads: Sequence[str] = (),
    ) -> None:
        with SampleFile(run.data, "data", []) as data:
            names = [head for head in read_references(data) if head]
        self._heads = np.array([heads.index(name) for name in names])
        own = ["head"] if names else []
        fields = [*INPUTS, *labels, *own]
        self._data, self._graph, self.numbers = open_split(run, split, fields)
        self._dtype = dtype

    def __len__(self) -> int:
        return len(self.numbers)

    def sizes(self) -> Sizes:
        """Return the number of rows of each kind in each sample."""
        kinds = {k: self._data.count_rows(k)[self.numbers] for k in self._data.offsets}
        kinds |= {k: self._graph.count_rows(k)[self.numbers] for k in self._graph.offsets}
        return kinds | {"sample": np.ones(len(self), np.int64)}

    def batch(self, indices: Sequence[int]) -> Batch:
        """Collate samples of this split into one batch."""
        numbers = self.numbers[np.asarray(indices)]
        return collate([self._read(n) | self._graph.read(n) for n in numbers], self._dtype)

    def read_structures(self, indices: Sequence[int]) -> Batch:
        """Collate samples without their graphs."""
        numbers = self.numbers[np.asarray(indices)]
        return collate([self._read(n) for n in numbers], self._dtype)

    def _read(self, number: int) -> dict[str, NDArray[Any]]:
        """Read a sample, with its head numbered as in the model."""
        sample = self._data.read(number)
        return sample | {"head": self._heads[sample["head"]]} if "head" in sample else sample


def collate_structures(
    structures: Iterable[Structure], graph: GraphOptions, dtype: torch.dtype
) -> Batch:
    """Collate structures with their graphs into one batch."""
    return collate([vars(one) | build_graph(vars(one), graph) for one in structures], dtype)


def count_rows(sizes: Sizes) -> NDArray[np.float64]:
    """Count the rows that a model works on: atoms + edges + angles, (n_samples,)."""
    kinds = [sizes[kind] for kind in ("atom", "edge", "angle") if kind in sizes]
    total: NDArray[np.float64] = np.sum(kinds, axis=0, dtype=np.float64)
    return total


def build_potential_task(run: Run, module: Potential, **facts: Any) -> Task:
    """Make the task of a potential: labels, losses, costs and reference energies from the run.

    Args:
        run: The run.
        module: New module; its `atom_energies` are set to the reference energies of the dataset. A
            run without a dataset rebuilds a trained model, which has them in its weights.
        **facts: Further metadata needed to rebuild the module, JSON-able.

    Raises:
        ValueError: The dataset lacks a label that the experiment trains on, or the files do not
            belong together.
    """
    options = run.get_section("train", TrainOptions)
    by_head, available, elements = _read_facts(run)
    _require_heads(run, module, by_head)
    for head, references in by_head.items():
        energies = module.list_references()[module.head_names.index(head) if head else 0]
        for symbol, energy in references.items():
            energies[atomic_numbers[symbol]] = energy
    labels = [name for name in module.predicts if name in available]
    lacking = [t for t in options.loss if t in module.predicts and t not in available]
    if lacking and run.dataset is not None:
        raise ValueError(
            f"experiment {run.experiment!r} trains on {lacking[0]!r}, which dataset {run.data} "
            f"does not hold (it holds {', '.join(available)}); remove train.loss.{lacking[0]} or "
            "import the label"
        )
    quantities = tuple(Quantity(name, per_atom=name == "energy") for name in labels)
    dtype = torch.float64 if options.precision == "64-true" else torch.float32
    return Task(
        module=module,
        objective=LabelObjective(
            options.loss, quantities, _list_head_weights(options, module.head_names)
        ),
        samples=lambda split: GraphSamples(run, split, labels, dtype, module.head_names),
        cost=count_rows,
        quantities=quantities,
        explain_start=partial(explain_start, options),
        receptive_field=module.receptive_field,
        metadata={
            "options": run.options.model_dump(mode="json"),
            "graph": run.sections["graph"].model_dump(mode="json"),
            "elements": sorted(elements, key=chemical_symbols.index),
            **facts,
        },
    )


def _require_heads(run: Run, module: Potential, by_head: Collection[str]) -> None:
    """Check that a model has the heads of its dataset."""
    names = [head for head in by_head if head]
    lacking = [name for name in names if name not in module.head_names]
    if lacking:
        own = f"only {', '.join(module.head_names)}" if module.head_names else "one without a name"
        raise ValueError(
            f"{run.experiment}: the dataset is for the heads {', '.join(names)}, and the model has "
            f"{own}; let the section model name them all, if models of plugin "
            f"{run.model_info.name!r} can have several, or take a dataset whose parts name no head"
        )
    partition = run.sections.get("partition")
    if names and isinstance(partition, PartitionOptions) and partition.parts != "samples":
        raise ValueError(
            f"{run.experiment}: partition.parts: {partition.parts}: structures of several heads "
            "are not divided between ranks; set it to samples"
        )


def _list_head_weights(options: TrainOptions, names: Sequence[str]) -> list[float] | None:
    """Return the weight of each head in the loss; None if all are equal."""
    unknown = [name for name in options.head_weights if name not in names]
    if unknown:
        raise ValueError(
            f"train.head_weights: the model has no head {unknown[0]!r}, only "
            f"{', '.join(names) or 'one without a name'}; correct the name or remove the key"
        )
    return [options.head_weights.get(name, 1.0) for name in names] if options.head_weights else None


def read_references(data: SampleFile) -> dict[str, dict[str, float]]:
    """Return the reference energies of a dataset, eV by symbol, of each head; "" if it has none."""
    heads: dict[str, dict[str, float]] = json.loads(data.attributes.get("heads", "{}"))
    return heads or {"": json.loads(data.attributes.get("reference_energies", "{}"))}


def _read_facts(run: Run) -> tuple[dict[str, dict[str, float]], list[str], list[str]]:
    """Return reference energies by head, labels and elements of a dataset; empty without one."""
    if run.dataset is None:
        return {}, [], []
    with SampleFile(run.data, "data", []) as data:
        missing = [
            n for n in ("reference_energies", "labels", "elements") if n not in data.attributes
        ]
        if missing:
            raise ValueError(
                f"{run.data}: lacks the attributes {', '.join(missing)}, which the import of "
                "structures writes; import the data again"
            )
        labels, elements = (json.loads(data.attributes[name]) for name in ("labels", "elements"))
        return read_references(data), labels, elements
