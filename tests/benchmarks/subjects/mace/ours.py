"""The plugin and its kernels, as `harness/worker.py` measures them."""

from typing import Any

import torch
from ase.data import chemical_symbols
from torch import Tensor

from harness.crystals import CalculatedCrystals
from harness.dynamics import Simulation
from harness.graphs import build_samples
from harness.structures import Arrays, read_structures
from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.potential.potential import Potential
from pipeline_core.batch import collate, move_to_device
from pipeline_core.system.memory import keep_freed_memory
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
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions
from subjects.mace.training import OURS, Kernel, MovingAtoms, TrainedNetwork


class Network(TrainedNetwork):
    """`pipeline_mace`."""

    fused = True

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        keep_freed_memory()  # as the commands that train and predict do
        model = load_network(arrays, options, "energy", "forces")
        super().__init__(model, arrays, options["device"])
        self.samples = build_samples(read_structures(arrays), cutoff=model.graph.cutoff)

    def predict(self, training: bool) -> tuple[Tensor, Tensor]:
        batch = move_to_device(collate(self.samples, torch.float32), torch.device(self.device))
        with torch.set_grad_enabled(training):
            result = self.model(batch)
        return result["energy"], result["forces"]


class MovedNetwork(MovingAtoms):
    """An inference, with the option `compiled` of what `infer.compile` makes of the network."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        dtype = getattr(torch, options["dtype"])
        super().__init__(arrays, dtype)
        self.module = load_fixed_network(arrays, options).to(dtype).eval()
        (sample,) = build_samples(read_structures(arrays), cutoff=options["cutoff"])
        self.batch = collate([sample], dtype)

    def predict(self, positions: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            outputs: dict[str, Tensor] = self.module(self.batch | {"positions": positions})
        return outputs


class Dynamics(Simulation):
    """A cell with the network, or with the option `compiled` what `infer.compile` makes of it."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        graph = GraphOptions(cutoff=options["cutoff"])
        module, dtype = load_fixed_network(arrays, options), getattr(torch, options["dtype"])
        calculator = PotentialCalculator(module, graph, options["elements"], dtype=dtype)
        super().__init__(arrays, calculator, options)


class Crystals(CalculatedCrystals):
    """The calculator, which searches all neighbours anew."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        module, dtype = load_network(arrays, options), getattr(torch, options["dtype"])
        calculator = PotentialCalculator(module, module.graph, chemical_symbols, dtype=dtype)
        super().__init__(arrays, calculator)


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
    return MACE(MACEOptions(**options["model"]), facts, GraphOptions(cutoff=options["cutoff"]))


def load_network(arrays: Arrays, options: dict[str, Any], *predicts: str) -> MACE:
    """Return our network with the weights of the arrays; energy, forces and stress if not said."""
    module = make_network(options)
    module.predicts = predicts or ("energy", "forces", "stress")
    state = {n.removeprefix(OURS): torch.from_numpy(x) for n, x in arrays.items() if OURS in n}
    module.load_state_dict(state)
    return module


def load_fixed_network(arrays: Arrays, options: dict[str, Any]) -> Potential:
    """Return our network, whose weights do not change, compiled or not, in single precision."""
    module = load_network(arrays, options).requires_grad_(False)
    return module.compile_inference() if options["compiled"] else module


def find_polynomial(options: dict[str, Any]) -> Polynomial:
    """Return the polynomial of a contraction."""
    inputs, outputs = (
        tuple(Irrep.parse(name) for name in options[key].split("+"))
        for key in ("inputs", "outputs")
    )
    return Polynomial(inputs, outputs, options["correlation"])
