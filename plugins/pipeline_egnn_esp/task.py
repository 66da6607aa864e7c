"""Task of training and evaluation: network, samples, loss, and settings to rebuild a model."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.potential.task import count_rows
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.batch import Batch
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.project.run import Run
from pipeline_core.task import Quantity, Task
from pipeline_egnn_esp.data.baselines import TwoCentre
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.samples import MatrixSamples, make_block_fields
from pipeline_egnn_esp.data.stage import read_basis
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.model.scaling import ScaledNetwork, Sizes
from pipeline_egnn_esp.options import ESPOptions, ESPTrainOptions
from pipeline_egnn_esp.training.objective import BlockObjective

_CLUSTER: Final = 32
"""Atoms of the check of a model whose structures may be too large for one process."""


def build_matrix_task(run: Run) -> Task:
    """Build the network for the basis of the data, with its samples and objective.

    Two-centre tables are fitted to the training structures, unless the run rebuilds a trained
    model, whose weights contain them.

    Args:
        run: The run.

    Raises:
        ValueError: The dataset holds no matrices, or its basis differs from the basis of the model
            that is rebuilt.
    """
    options, train = run.get_section("model", ESPOptions), run.get_section("train", ESPTrainOptions)
    basis, cutoff = _read_basis(run), run.get_section("graph", GraphOptions).cutoff
    module = ScaledNetwork(
        Network(options, basis, cutoff),
        TwoCentre(basis, cutoff),
        Sizes(basis, cutoff),
        uses_edges=options.two_centre,
    )
    make = partial(MatrixSamples, run, basis=basis, options=options)
    if run.metadata is None:
        module.fit(make("train", dtype=torch.float64).read_pieces)
    fields = make_block_fields(basis, options.target)
    quantities = tuple(Quantity(field.name, own_field=field) for field in fields)
    dtype = torch.float64 if train.precision == "64-true" else torch.float32
    is_divided = run.get_section("partition", PartitionOptions).parts == "graph"
    return Task(
        module=module,
        objective=BlockObjective(train.blocks, quantities, module),
        samples=partial(make, dtype=dtype),
        cost=count_rows,
        quantities=quantities,
        probe=partial(_read_cluster, partial(make, dtype=dtype)) if is_divided else None,
        bytes_per_atom=count_bytes_per_atom(options, dtype.itemsize),
        metadata={
            "options": options.model_dump(mode="json"),
            "graph": run.sections["graph"].model_dump(mode="json"),
            "basis": basis.to_json(),
            "elements": list(basis.shells),
        },
    )


def count_bytes_per_atom(options: ESPOptions, size: int) -> float:
    """Return the bytes exchanged for a ghost atom in a layer, for numbers of `size` bytes."""
    return float(size * (options.lmax + 1) ** 2 * options.channels)


def _read_cluster(samples: Callable[[str], MatrixSamples]) -> Batch:
    """Return a part of a sample small enough for one process, for structures of any size."""
    return samples("train").read_cluster(0, _CLUSTER)


def _read_basis(run: Run) -> Basis:
    """Return the basis of the model that is rebuilt, or of the data."""
    trained = None if run.metadata is None else Basis.from_json(run.metadata["basis"])
    if run.dataset is None:
        if trained is None:
            raise ValueError(
                f"{run.experiment}: names no dataset, which defines the basis; add the key "
                "`dataset`"
            )
        return trained
    with SampleFile(run.data, "data", []) as data:
        basis = read_basis(data)
    if trained is None:
        return basis
    for symbol, shells in basis.shells.items():
        if trained.shells.get(symbol) != shells:
            raise ValueError(
                f"{run.data}: {symbol} has shells {list(shells)}, but the model was trained with "
                f"{dict(trained.shells)}; use data of the basis set that it was trained with"
            )
    return trained
