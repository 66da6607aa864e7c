"""mace-torch and its modules, as `harness/worker.py` measures them in the peer's environment.

Where cuequivariance is installed mace-torch multiplies with a smaller set of couplings, which is
faster; its weights are then those that give the same products as ours.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import torch
from ase.data import atomic_numbers
from e3nn import o3
from e3nn.util import jit
from mace import data, modules
from mace.calculators import MACECalculator
from mace.modules.irreps_tools import tp_out_irreps_with_instructions
from mace.modules.symmetric_contraction import SymmetricContraction
from mace.modules.wrapper_ops import SymmetricContractionWrapper, TensorProduct
from mace.tools import AtomicNumberTable, torch_geometric
from mace.tools.cg import U_matrix_real
from mace.tools.scatter import scatter_sum
from torch import Tensor, nn

from harness.crystals import CalculatedCrystals
from harness.dynamics import Simulation
from harness.structures import Arrays, read_structures
from subjects.mace.training import Kernel, MovingAtoms, TrainedNetwork


class Network(TrainedNetwork):
    """`ScaleShiftMACE`."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        model = load_network(arrays, options)
        if options["peer_kernels"] == "cuequivariance":
            model = convert_kernels(model, options["device"])
        super().__init__(model, arrays, options["device"])
        self.graphs = build_graphs(arrays, options)

    def predict(self, training: bool) -> tuple[Tensor, Tensor]:
        batch = torch_geometric.batch.Batch.from_data_list(self.graphs).to(self.device).to_dict()
        actual = self.model(batch, training=training, compute_force=True)
        return actual["energy"], actual["forces"]

    def differentiate(self, loss: Tensor) -> None:
        loss.backward()


class MovedNetwork(MovingAtoms):
    """`ScaleShiftMACE` as `MACECalculator` calls it: weights are fixed, and stress is asked for.

    With the option `script` it is TorchScript, as mace-torch makes it for LAMMPS.
    """

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        dtype = getattr(torch, options["dtype"])
        super().__init__(arrays, dtype)
        module = load_fixed_network(arrays, options)
        self.module = jit.compile(module) if options["script"] else module
        graphs = build_graphs(arrays, options)
        self.batch = torch_geometric.batch.Batch.from_data_list(graphs).to_dict()

    def predict(self, positions: Tensor) -> dict[str, Tensor]:
        outputs = self.module({**self.batch, "positions": positions}, compute_stress=True)
        return {name: outputs[name] for name in ("energy", "forces", "stress")}


class Dynamics(Simulation):
    """A cell with `MACECalculator` and its own settings but for the type of numbers."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        model = load_fixed_network(arrays, options)
        super().__init__(arrays, make_calculator(model, options), options)


class Crystals(CalculatedCrystals):
    """`MACECalculator` with its own settings but for the type of numbers."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        model = load_network(arrays, options).to(getattr(torch, options["dtype"]))
        super().__init__(arrays, make_calculator(model, options))


def make_calculator(model: nn.Module, options: dict[str, Any]) -> MACECalculator:
    """Return the calculator of mace-torch."""
    return MACECalculator(models=model, device="cpu", default_dtype=options["dtype"])


def load_network(arrays: Arrays, options: dict[str, Any]) -> modules.ScaleShiftMACE:
    """Return the network with the weights of the arrays."""
    numbers = [atomic_numbers[symbol] for symbol in options["elements"]]
    model = make_network(
        numbers, options["average_neighbours"], options["cutoff"], **options["model"]
    )
    load(model, arrays)
    return model


def load_fixed_network(arrays: Arrays, options: dict[str, Any]) -> modules.ScaleShiftMACE:
    """Return the network, made in its own type, so that couplings have the full precision."""
    torch.set_default_dtype(getattr(torch, options["dtype"]))
    return load_network(arrays, options).requires_grad_(False).eval()


def build_graphs(arrays: Arrays, options: dict[str, Any]) -> list[data.AtomicData]:
    """Return the structures with their graphs."""
    numbers = [atomic_numbers[symbol] for symbol in options["elements"]]
    table, cutoff = AtomicNumberTable(numbers), options["cutoff"]
    return [
        data.AtomicData.from_config(data.config_from_atoms(a), z_table=table, cutoff=cutoff)
        for a in read_structures(arrays)
    ]


def convert_kernels(model: modules.ScaleShiftMACE, device: str) -> nn.Module:
    """Return the network with the kernels of cuequivariance, by the converter of mace-torch."""
    from mace.cli.convert_e3nn_cueq import run  # not there without cuequivariance

    converted: nn.Module = run(model, device=device, return_model=True)
    return converted


class Product(Kernel):
    """Gather, the tensor product of e3nn, and scatter, as an interaction of mace-torch has them."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        form = ProductForm(arrays, options)
        operands = form.operands | {"w": torch.from_numpy(arrays["w"]).flatten(1)}
        super().__init__(
            form.multiply, operands, form.cotangent, options["moving"], form.move_channels_last
        )


class MixedProduct(Kernel):
    """The same behind the last linear layer of a radial network, which is there one of edges."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        form, rows = ProductForm(arrays, options), torch.from_numpy(arrays["rows"])
        operands = form.operands | {name: torch.from_numpy(arrays[name]) for name in ("x", "A")}
        super().__init__(
            lambda h, Y, x, A: form.multiply(h, Y, x[rows] @ A),
            operands,
            form.cotangent,
            options["moving"],
            form.move_channels_last,
        )


class ProductForm:
    """The tensor product of a layer for the edges of a graph.

    Attributes:
        operands: Features and harmonics in the layout of e3nn.
        cotangent: Of the result.
    """

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        channels = arrays["h"].shape[2]
        irreps_h, target = (
            o3.Irreps(multiply_irreps(options[key], channels)) for key in ("features", "targets")
        )
        irreps_y = o3.Irreps.spherical_harmonics(options["lmax"])
        self.irreps, paths = tp_out_irreps_with_instructions(irreps_h, irreps_y, target)
        self.product = TensorProduct(
            irreps_h, irreps_y, self.irreps, paths, shared_weights=False, internal_weights=False
        )
        self.senders, self.receivers = (
            torch.from_numpy(arrays[name]) for name in ("senders", "receivers")
        )
        self.operands = {
            "h": flatten_features(arrays["h"], irreps_h),
            "Y": torch.from_numpy(arrays["Y"]),
        }
        self.cotangent = flatten_features(arrays["cotangent"], self.irreps)

    def multiply(self, h: Tensor, Y: Tensor, w: Tensor) -> Tensor:
        """Return the sums of all edges into each atom."""
        messages = self.product(h[self.senders], Y, w)
        return scatter_sum(messages, self.receivers, dim=0, dim_size=len(h))

    def move_channels_last(self, result: Tensor) -> Tensor:
        """Return a result in the layout of the kernels here."""
        return move_channels_last(result, self.irreps)


class Contraction(Kernel):
    """`SymmetricContraction`; all its weights are one operand here."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        channels = arrays["x"].shape[2]
        one_hot = nn.functional.one_hot(
            torch.from_numpy(arrays["element"]), len(arrays["weights"])
        ).float()
        irreps_out = o3.Irreps(multiply_irreps(options["outputs"], channels))
        module = SymmetricContractionWrapper(
            irreps_in=o3.Irreps(multiply_irreps(options["inputs"], channels)),
            irreps_out=irreps_out,
            correlation=options["correlation"],
            num_elements=len(arrays["weights"]),
        )
        full = np.split(arrays["weights"], np.cumsum(options["blocks"])[:-1], axis=1)
        weights = {
            name: change_couplings(torch.from_numpy(own), matrix)
            for (name, matrix), own in zip(iterate_blocks(module), full, strict=True)
        }
        super().__init__(
            lambda x, *weights_: torch.func.functional_call(
                module, dict(zip(weights, weights_, strict=True)), (x, one_hot)
            ),
            {"x": torch.from_numpy(arrays["x"]).mT.contiguous(), **weights},
            flatten_features(arrays["cotangent"], irreps_out),
            ["x"],
            lambda result: move_channels_last(result, irreps_out),
        )


def make_network(
    numbers: list[int], average_neighbours: float, cutoff: float, **options: Any
) -> modules.ScaleShiftMACE:
    """Return a network with the sizes of `pipeline_mace.options`."""
    channels = options["channels"]
    residual = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    hidden = "+".join(f"{l}{'eo'[l % 2]}" for l in range(options["max_l"] + 1))  # noqa: E741
    return modules.ScaleShiftMACE(
        r_max=cutoff,
        num_bessel=options["radial_functions"],
        num_polynomial_cutoff=options["envelope_power"],
        max_ell=options["lmax"],
        interaction_cls=residual,
        interaction_cls_first=residual,
        num_interactions=options["layers"],
        num_elements=len(numbers),
        hidden_irreps=o3.Irreps(multiply_irreps(hidden, channels)),
        MLP_irreps=o3.Irreps(f"{options['readout_features']}x0e"),
        atomic_energies=np.zeros(len(numbers)),
        avg_num_neighbors=average_neighbours,
        atomic_numbers=numbers,
        correlation=options["correlation"],
        gate=nn.functional.silu,
        radial_MLP=options["radial_features"],
        radial_type="bessel",
        atomic_inter_scale=1.0,
        atomic_inter_shift=0.0,
    )


def load(model: modules.ScaleShiftMACE, arrays: Arrays) -> None:
    """Set the weights that `pipeline_mace.conversion.weights` has written."""
    state = model.state_dict()
    dtype = torch.get_default_dtype()
    given = {name: torch.from_numpy(x).to(dtype) for name, x in arrays.items() if name in state}
    for i, product in enumerate(model.products):
        inside = f"products.{i}.symmetric_contractions."
        for name, matrix in iterate_blocks(product.symmetric_contractions):
            given[inside + name] = change_couplings(given[inside + name], matrix)
    model.load_state_dict(state | given)


def iterate_blocks(module: SymmetricContraction) -> Iterator[tuple[str, Tensor]]:
    """Yield, for each output and number of factors, the name of its weights, and their change.

    The change is the matrix (couplings of the module, couplings of `pipeline_mace`) that takes our
    weights over.
    """
    for i, ((_, irrep), own) in enumerate(zip(module.irreps_out, module.contractions, strict=True)):
        for degree in range(1, own.correlation + 1):
            last = degree == own.correlation
            name = "weights_max" if last else f"weights.{own.correlation - 1 - degree}"
            couplings = U_matrix_real(
                own.coupling_irreps, str(irrep), degree, use_cueq_cg=False, dtype=torch.float64
            )[-1]
            yield f"contractions.{i}.{name}", change(couplings, own.U_tensors(degree), degree)


def change(ours: Tensor, own: Tensor, degree: int) -> Tensor:
    """Return the matrix between weights of two sets of couplings that give the same products."""
    if ours.shape == own.shape and torch.allclose(ours, own.double(), atol=1e-6):
        return torch.eye(ours.shape[-1], dtype=torch.float64)
    axes = range(ours.ndim - 1 - degree, ours.ndim - 1)  # of the factors, which commute
    orders = [[*range(axes[0]), *order, ours.ndim - 1] for order in permutations(axes)]
    symmetric = sum(ours.permute(order) for order in orders) / len(orders)
    left, right = own.double().flatten(0, -2), symmetric.flatten(0, -2)
    matrix = torch.linalg.lstsq(left, right).solution
    assert torch.allclose(left @ matrix, right, atol=1e-5), "the couplings span other products"
    return matrix


def change_couplings(weights: Tensor, matrix: Tensor) -> Tensor:
    """Return weights (n_elements, couplings, channels) for the other couplings."""
    return torch.einsum("kl,elc->ekc", matrix.to(weights), weights).contiguous()


def multiply_irreps(irreps: str, channels: int) -> str:
    """Give each representation its channels."""
    return "+".join(f"{channels}x{irrep.strip()}" for irrep in irreps.split("+"))


def flatten_features(features: np.ndarray, irreps: o3.Irreps) -> Tensor:
    """Return features (n, components, channels) as e3nn has them, one block after the other."""
    parts = torch.from_numpy(features).split([irrep.dim for _, irrep in irreps], dim=1)
    return torch.cat([part.mT.flatten(1) for part in parts], dim=1)


def move_channels_last(features: Tensor, irreps: o3.Irreps) -> Tensor:
    """Return features of e3nn as (n, components, channels)."""
    parts = features.split([mul * irrep.dim for mul, irrep in irreps], dim=1)
    shaped = zip(parts, irreps, strict=True)
    return torch.cat([part.unflatten(1, (mul, irrep.dim)).mT for part, (mul, irrep) in shaped], 1)
