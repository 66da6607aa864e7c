"""Weights of mace-torch, taken over and given back.

Both networks hold the same numbers. A row of the table names a tensor of mace-torch's
`ScaleShiftMACE` and the views of ours that hold it, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from ase.data import atomic_numbers
from torch import Tensor

from pipeline_mace.layers import Interaction, ProductBasis, Readout
from pipeline_mace.model import MACE


class Row(NamedTuple):
    """One tensor of mace-torch.

    Attributes:
        name: In its state.
        parts: Views of our parameters, to be flattened and joined.
        shape: As mace-torch has it.
    """

    name: str
    parts: list[Tensor]
    shape: tuple[int, ...]


def from_peer(module: MACE, state: Mapping[str, Tensor]) -> None:
    """Take over the weights of a network of mace-torch with the same options.

    Args:
        module: Ours.
        state: Its `state_dict()`. Energies of free atoms are taken over, and elements and cutoff
            compared, if it holds them.

    Raises:
        ValueError: A tensor is missing or has another size, or elements or cutoff differ.
    """
    numbers = [atomic_numbers[symbol] for symbol in module.facts.elements]
    for name, ours in (("atomic_numbers", numbers), ("r_max", [module.options.cutoff])):
        theirs = state[name].reshape(-1).tolist() if name in state else ours
        if len(theirs) != len(ours) or not np.allclose(theirs, ours):
            raise ValueError(f"{name}: the network has {theirs}, ours {ours}; make ours alike")
    energies = state.get("atomic_energies_fn.atomic_energies", module.atom_energies[numbers])
    if energies.numel() != len(numbers):
        raise ValueError(
            f"atomic_energies_fn.atomic_energies: {energies.numel()} for {len(numbers)} elements; "
            "take a network with one head"
        )
    with torch.no_grad():
        module.atom_energies[numbers] = energies.reshape(-1).double()
        for name, parts, shape in _table(module):
            if name not in state or tuple(state[name].shape) != shape:
                found = tuple(state[name].shape) if name in state else "no such tensor"
                raise ValueError(
                    f"{name}: expected {shape}, found {found}; the network has other options, or "
                    "is no ScaleShiftMACE with RealAgnostic interactions"
                )
            pieces = state[name].reshape(-1).split([part.numel() for part in parts])
            for part, piece in zip(parts, pieces, strict=True):
                part.copy_(piece.view(part.shape))


def to_peer(module: MACE) -> dict[str, Tensor]:
    """Return our weights as tensors of mace-torch, by their names there."""
    return {
        name: torch.cat([part.detach().reshape(-1) for part in parts]).view(shape)
        for name, parts, shape in _table(module)
    }


def _table(module: MACE) -> Iterator[Row]:
    yield _flat("node_embedding.linear.weight", [module.embedding])
    for i, interaction in enumerate(module.interactions):
        assert isinstance(interaction, Interaction)
        yield from _interaction(f"interactions.{i}", interaction)
    for i, product in enumerate(module.products):
        assert isinstance(product, ProductBasis)
        yield from _product(f"products.{i}", product)
    for i, readout in enumerate(module.readouts):
        assert isinstance(readout, Readout)
        names = ["linear_1", "linear_2"] if len(readout.weights) > 1 else ["linear"]
        for name, weight in zip(names, readout.weights, strict=True):
            yield _flat(f"readouts.{i}.{name}.weight", [weight])
    yield Row("scale_shift.scale", [module.scale], ())
    yield Row("scale_shift.shift", [module.shift], ())


def _interaction(name: str, interaction: Interaction) -> Iterator[Row]:
    yield _flat(f"{name}.linear_up.weight", list(interaction.up.weights))
    for j, weight in enumerate(interaction.radial.weights):
        yield Row(f"{name}.conv_tp_weights.layer{j}.weight", [weight], tuple(weight.shape))
    yield _flat(f"{name}.linear.weight", list(interaction.down.weights))
    yield _flat(f"{name}.skip_tp.weight", [w.transpose(0, 1) for w in interaction.skip.weights])


def _product(name: str, product: ProductBasis) -> Iterator[Row]:
    irreps, correlation = product.polynomial.irreps_out, product.polynomial.correlation
    for block in product.polynomial.blocks:
        inside = f"{name}.symmetric_contractions.contractions.{irreps.index(block.irrep)}"
        own = product.weights[:, block.first : block.first + block.n_weights]
        last = block.degree == correlation
        tail = "weights_max" if last else f"weights.{correlation - 1 - block.degree}"
        yield Row(f"{inside}.{tail}", [own], tuple(own.shape))
    yield _flat(f"{name}.linear.weight", list(product.linear.weights))


def _flat(name: str, parts: list[Tensor]) -> Row:
    return Row(name, parts, (sum(part.numel() for part in parts),))
