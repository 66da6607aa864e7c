"""The plugin and its kernels, as `_worker.py` measures them."""

from typing import Any

import numpy as np
import torch
from _mace_subjects import Arrays, Kernel, TrainedNetwork, read_structures
from torch import Tensor

from pipeline_core.batch import collate, move_to_device
from pipeline_core.config.sections import GraphOptions
from pipeline_core.graphs import build_graph
from pipeline_core.memory import keep_freed_memory
from pipeline_kernels.equivariant.clebsch_gordan import Irrep
from pipeline_kernels.equivariant.contraction import (
    AtomsByElement,
    Polynomial,
    combine_coefficients,
    contract,
)
from pipeline_kernels.equivariant.mixed_product import Graph, mixed_product
from pipeline_kernels.equivariant.tensor_product import ProductPlan, tensor_product
from pipeline_kernels.message import Segments
from pipeline_mace.model import MACE, Facts
from pipeline_mace.options import MACEOptions

OURS = "ours/"
"""What the names of our own weights begin with in the arrays of a subject."""


class Network(TrainedNetwork):
    """`pipeline_mace`."""

    fused = True

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        keep_freed_memory()  # as the commands that train and predict do
        model = make_network(options)
        state = {n.removeprefix(OURS): torch.from_numpy(x) for n, x in arrays.items() if OURS in n}
        model.load_state_dict(state)
        super().__init__(model, arrays, options["device"])
        self.samples = build_graphs(arrays, model.options.cutoff)

    def predict(self, training: bool) -> tuple[Tensor, Tensor]:
        batch = move_to_device(collate(self.samples, torch.float32), torch.device(self.device))
        with torch.set_grad_enabled(training):
            result = self.model(batch)
        return result["energy"], result["forces"]

    def differentiate(self, loss: Tensor) -> None:
        torch.autograd.backward(loss, inputs=[*self.model.parameters()])


class Product(Kernel):
    """The channelwise tensor product, gather and scatter included."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        operands = {name: torch.from_numpy(arrays[name]) for name in ("h", "Y", "w")}
        n_atoms = len(operands["h"])
        senders, receivers = (
            Segments.of(torch.from_numpy(arrays[name]), n_atoms)
            for name in ("senders", "receivers")
        )
        plan = ProductPlan.of(options["features"], options["lmax"], options["targets"])
        super().__init__(
            lambda h, Y, w: tensor_product(h, Y, w, senders, receivers, plan),
            operands,
            torch.from_numpy(arrays["cotangent"]),
            options["moving"],
        )


class MixedProduct(Kernel):
    """The tensor product with the linear map of radial features behind it."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        operands = {name: torch.from_numpy(arrays[name]) for name in ("h", "Y", "x", "A")}
        sizes = {"senders": "h", "receivers": "h", "rows": "x"}
        graph = Graph.of(
            *(
                Segments.of(torch.from_numpy(arrays[name]), len(operands[of]))
                for name, of in sizes.items()
            )
        )
        plan = ProductPlan.of(options["features"], options["lmax"], options["targets"])
        super().__init__(
            lambda h, Y, x, A: mixed_product(h, Y, x, A, graph, plan),
            operands,
            torch.from_numpy(arrays["cotangent"]),
            options["moving"],
        )


class Contraction(Kernel):
    """The symmetric contraction, coefficients included."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        polynomial = find_polynomial(options)
        atoms = AtomsByElement.of(torch.from_numpy(arrays["element"]))
        super().__init__(
            lambda x, weights: contract(
                x, combine_coefficients(weights, polynomial, atoms), polynomial, atoms
            ),
            {name: torch.from_numpy(arrays[name]) for name in ("x", "weights")},
            torch.from_numpy(arrays["cotangent"]),
            ["x"],
        )


def make_network(options: dict[str, Any]) -> MACE:
    """Return our network, with random weights."""
    facts = Facts(tuple(options["elements"]), options["average_neighbours"])
    module = MACE(MACEOptions(**options["model"]), facts)
    module.predicts = ("energy", "forces")
    return module


def find_polynomial(options: dict[str, Any]) -> Polynomial:
    """Return the polynomial of a contraction."""
    inputs, outputs = (
        tuple(Irrep.parse(name) for name in options[key].split("+"))
        for key in ("inputs", "outputs")
    )
    return Polynomial(inputs, outputs, options["correlation"])


def build_graphs(arrays: Arrays, cutoff: float) -> list[dict[str, np.ndarray]]:
    """Return the samples of a batch with their graphs."""
    result = []
    for atoms in read_structures(arrays):
        sample = {
            "atomic_numbers": atoms.numbers,
            "positions": atoms.positions,
            "cell": np.array(atoms.cell),
            "pbc": np.array(atoms.pbc),
        }
        result.append(sample | build_graph(sample, GraphOptions(cutoff=cutoff)))
    return result
