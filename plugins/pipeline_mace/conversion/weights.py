"""Conversion of weights from and to mace-torch.

Both networks hold the same numbers, but weights of products in different bases of couplings. A row
of the table names a tensor of mace-torch's `ScaleShiftMACE` and the views of our parameters that
hold it, in its order.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from ase.data import atomic_numbers
from torch import Tensor

from pipeline_kernels.equivariant.contraction import Block, Polynomial
from pipeline_mace.conversion.peer import PeerOptions, check_peer
from pipeline_mace.model.couplings import Floats, map_to_ours, map_to_theirs
from pipeline_mace.model.layers import Interaction, ProductBasis, Readout
from pipeline_mace.model.network import MACE

_ENERGIES = "atomic_energies_fn.atomic_energies"


class Couplings(NamedTuple):
    """Couplings that the weights of a row of products are multiplied with.

    Attributes:
        name: Name of mace-torch's couplings in its state.
        polynomial: Our products.
        block: Products of the row.
    """

    name: str
    polynomial: Polynomial
    block: Block


class Row(NamedTuple):
    """One tensor of mace-torch.

    Attributes:
        name: Name in its state.
        parts: Views of our parameters, to be flattened and joined.
        shape: Shape in mace-torch; for products, the shape with our couplings.
        couplings: Couplings of products; None for other weights.
    """

    name: str
    parts: list[Tensor]
    shape: tuple[int, ...]
    couplings: Couplings | None = None

    def join(self) -> Tensor:
        """Return our numbers in mace-torch's order."""
        return torch.cat([part.detach().reshape(-1) for part in self.parts]).view(self.shape)


def load_from_peer(module: MACE, state: Mapping[str, Tensor], options: PeerOptions) -> None:
    """Load the weights and the energies of free atoms of a network of mace-torch.

    Everything is checked before anything is overwritten.

    Args:
        module: Our network.
        state: `state_dict()` of the network of mace-torch.
        options: Settings that the state lacks; `peer.read_peer_options` reads them.

    Raises:
        ValueError: The network does not compute the same as ours; the message names the difference.
    """
    rows = list_rows(module)
    _check(module, state, options, rows)
    numbers = _list_numbers(module)
    energies = state[_ENERGIES].detach().reshape(-1, len(numbers)).to(module.atom_energies)
    converted = [_convert(row, state) for row in rows]
    with torch.no_grad():
        module.atom_energies[numbers] = energies[0]
        if len(energies) > 1:
            module.further_energies[:, numbers] = energies[1:]
        for row, tensor in zip(rows, converted, strict=True):
            pieces = tensor.reshape(-1).split([part.numel() for part in row.parts])
            for part, piece in zip(row.parts, pieces, strict=True):
                part.copy_(piece.view(part.shape))


def list_weights(module: MACE) -> dict[str, Tensor]:
    """Return our numbers by their names in mace-torch, for all of its couplings.

    These are the weights of a network that is built with `use_reduced_cg=False`.
    """
    energies = torch.stack(module.list_references())[:, _list_numbers(module)]
    return {row.name: _convert_back(row) for row in list_rows(module)} | {_ENERGIES: energies}


def list_rows(module: MACE) -> list[Row]:
    """Return all our weights by their names in mace-torch."""
    return list(_list(module))


def _list_numbers(module: MACE) -> list[int]:
    return [atomic_numbers[symbol] for symbol in module.facts.elements]


def _check(
    module: MACE, state: Mapping[str, Tensor], options: PeerOptions, rows: list[Row]
) -> None:
    check_peer(module, state, options, {_ENERGIES, *(row.name for row in rows)})
    n_elements, n_heads = len(module.facts.elements), len(module.options.heads)
    if _ENERGIES not in state or state[_ENERGIES].numel() != n_elements * n_heads:
        count = state[_ENERGIES].numel() if _ENERGIES in state else "none"
        raise ValueError(
            f"{_ENERGIES}: {count} for {n_elements} elements and {n_heads} heads; the network has "
            "other elements or heads"
        )
    for row in rows:
        expected = _find_shape(row, state)
        shape = tuple(state[row.name].shape) if row.name in state else "no such tensor"
        if shape != expected and not (shape == (1,) and expected == ()):  # a list of one head
            raise ValueError(
                f"{row.name}: expected {expected}, got {shape}; the network has other options, or "
                "is not a ScaleShiftMACE with RealAgnostic interactions"
            )


def _find_shape(row: Row, state: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Return the shape of mace-torch's tensor, with its own number of couplings."""
    if row.couplings is None:
        return row.shape
    if row.couplings.name not in state:
        raise ValueError(
            f"{row.couplings.name}: not in the state, so the couplings of the weights of products "
            "are unknown; pass the state of a network that was not converted to cuequivariance"
        )
    n_elements, _, channels = row.shape
    return n_elements, state[row.couplings.name].shape[-1], channels


def _convert(row: Row, state: Mapping[str, Tensor]) -> Tensor:
    """Return a tensor of mace-torch for our couplings."""
    if row.couplings is None:
        return state[row.name]
    name, polynomial, block = row.couplings
    return _change(state[row.name], map_to_ours(polynomial, block, state[name]))


def _convert_back(row: Row) -> Tensor:
    """Return our numbers for all couplings of mace-torch."""
    if row.couplings is None:
        return row.join()
    _, polynomial, block = row.couplings
    return _change(row.join(), map_to_theirs(polynomial, block))


def _change(weights: Tensor, matrix: Floats | None) -> Tensor:
    """Return weights (n_elements, n_couplings, channels) for other couplings."""
    if matrix is None:
        return weights
    change = torch.from_numpy(matrix).to(weights.device)
    return torch.einsum("kl,elc->ekc", change, weights.double())


def _list(module: MACE) -> Iterator[Row]:
    yield _flatten("node_embedding.linear.weight", [module.embedding])
    for i, interaction in enumerate(module.interactions):
        assert isinstance(interaction, Interaction)
        yield from _list_interaction(f"interactions.{i}", interaction)
    for i, product in enumerate(module.products):
        assert isinstance(product, ProductBasis)
        yield from _list_product(f"products.{i}", product)
    for i, readout in enumerate(module.readouts):
        assert isinstance(readout, Readout)
        names = ["linear_1", "linear_2"] if len(readout.weights) > 1 else ["linear"]
        for name, weight in zip(names, readout.weights, strict=True):
            yield _flatten(f"readouts.{i}.{name}.weight", [weight])
    yield Row("scale_shift.scale", [module.scale], tuple(module.scale.shape))
    yield Row("scale_shift.shift", [module.shift], tuple(module.shift.shape))
    if module.transform is not None:
        for name in ("a", "q", "p"):
            number = getattr(module.transform, name)
            yield Row(f"radial_embedding.distance_transform.{name}", [number], ())
    if module.repulsion is not None:
        of_pairs = {"c": "c", "a_exp": "exponent", "a_prefactor": "prefactor"}
        for theirs, ours in of_pairs.items():
            numbers = getattr(module.repulsion, ours)
            yield Row(f"pair_repulsion_fn.{theirs}", [numbers], tuple(numbers.shape))


def _list_interaction(name: str, interaction: Interaction) -> Iterator[Row]:
    yield _flatten(f"{name}.linear_up.weight", list(interaction.up.weights))
    for j, weight in enumerate(interaction.radial.weights):
        yield Row(f"{name}.conv_tp_weights.layer{j}.weight", [weight], tuple(weight.shape))
    yield _flatten(f"{name}.linear.weight", list(interaction.down.weights))
    yield _flatten(f"{name}.skip_tp.weight", [w.transpose(0, 1) for w in interaction.skip.weights])
    if interaction.density is not None:
        shape = tuple(interaction.density.shape)
        yield Row(f"{name}.density_fn.layer0.weight", [interaction.density], shape)


def _list_product(name: str, product: ProductBasis) -> Iterator[Row]:
    polynomial = product.polynomial
    irreps, correlation = polynomial.irreps_out, polynomial.correlation
    for block in polynomial.blocks:
        inside = f"{name}.symmetric_contractions.contractions.{irreps.index(block.irrep)}"
        own = product.weights[:, block.first : block.first + block.n_weights]
        last = block.degree == correlation
        tail = "weights_max" if last else f"weights.{correlation - 1 - block.degree}"
        couplings = Couplings(f"{inside}.U_matrix_{block.degree}", polynomial, block)
        yield Row(f"{inside}.{tail}", [own], tuple(own.shape), couplings)
    yield _flatten(f"{name}.linear.weight", list(product.linear.weights))


def _flatten(name: str, parts: list[Tensor]) -> Row:
    return Row(name, parts, (sum(part.numel() for part in parts),))
