"""Training and evaluation of interatomic potentials on data and graphs of the engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ase.data import atomic_numbers, chemical_symbols
from numpy.typing import NDArray

from pipeline_core.batch import Batch, collate
from pipeline_core.config.sections import GraphOptions, TrainOptions
from pipeline_core.fields import SPLITS
from pipeline_core.graphs import list_graph_fields
from pipeline_core.objective import LabelObjective
from pipeline_core.potential import Potential
from pipeline_core.run import Run
from pipeline_core.samples import SampleFile
from pipeline_core.task import Quantity, Sizes, Task

INPUTS = ("atomic_numbers", "positions", "cell", "pbc")


class GraphSamples:
    """The samples of one split: data and graph side by side.

    Args:
        run: The run whose artifacts are read.
        split: Name of the split.
        labels: Label fields to read.
        dtype: Type of floating-point tensors.
    """

    def __init__(self, run: Run, split: str, labels: Sequence[str], dtype: torch.dtype) -> None:
        options = run.get_section("graph", GraphOptions)
        self._data = SampleFile(run.data, "data", [*INPUTS, *labels])
        names = [field.name for field in list_graph_fields(options)]
        self._graph = SampleFile(run.graph, "graph", names, beside=self._data)
        if len(self._data) != len(self._graph):
            raise ValueError(
                f"{run.graph}: holds {len(self._graph)} graphs for the {len(self._data)} samples "
                f"of {run.data}; run the stage 'graph' again"
            )
        self.numbers = np.flatnonzero(self._data.read_column("split") == SPLITS.index(split))
        self._dtype = dtype

    def __len__(self) -> int:
        return len(self.numbers)

    def sizes(self) -> Sizes:
        """Return the rows of each kind that each sample has."""
        kinds = {k: self._data.count_rows(k)[self.numbers] for k in self._data.offsets}
        kinds |= {k: self._graph.count_rows(k)[self.numbers] for k in self._graph.offsets}
        return kinds | {"sample": np.ones(len(self), np.int64)}

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return samples of this split as one batch."""
        numbers = self.numbers[np.asarray(indices)]
        return collate([self._data.read(n) | self._graph.read(n) for n in numbers], self._dtype)

    def read_structures(self, indices: Sequence[int]) -> Batch:
        """Return the same samples without their graphs."""
        numbers = self.numbers[np.asarray(indices)]
        return collate([self._data.read(n) for n in numbers], self._dtype)


def count_rows(sizes: Sizes) -> NDArray[np.float64]:
    """Return the number of rows that a model works on: atoms + edges + angles, (n_samples,)."""
    kinds = [sizes[kind] for kind in ("atom", "edge", "angle") if kind in sizes]
    total: NDArray[np.float64] = np.sum(kinds, axis=0, dtype=np.float64)
    return total


def build_potential_task(run: Run, module: Potential, **facts: Any) -> Task:
    """Make the task of a potential: labels, losses, costs and reference energies from the run.

    Args:
        run: The run.
        module: Freshly built; its `atom_energies` are set to the reference energies of the dataset.
            A run without a dataset rebuilds a trained model, whose weights hold them.
        **facts: What else rebuilds the module: further keys of the metadata, JSON-able.

    Raises:
        ValueError: The dataset lacks what the experiment trains on, or the files do not fit
            together.
    """
    options = run.get_section("train", TrainOptions)
    references, available, elements = _read_facts(run)
    with torch.no_grad():
        for symbol, energy in references.items():
            module.atom_energies[atomic_numbers[symbol]] = energy
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
        objective=LabelObjective(options.loss, quantities),
        samples=lambda split: GraphSamples(run, split, labels, dtype),
        cost=count_rows,
        quantities=quantities,
        receptive_field=module.receptive_field,
        metadata={
            "options": run.options.model_dump(mode="json"),
            "graph": run.sections["graph"].model_dump(mode="json"),
            "elements": sorted(elements, key=chemical_symbols.index),
            **facts,
        },
    )


def _read_facts(run: Run) -> tuple[dict[str, float], list[str], list[str]]:
    """Return reference energies, labels and elements of the dataset, none without a dataset."""
    if run.dataset is None:
        return {}, [], []
    with SampleFile(run.data, "data", []) as data:
        references, labels, elements = (
            json.loads(data.attributes[name])
            for name in ("reference_energies", "labels", "elements")
        )
    return references, labels, elements
