"""The layers of a compiled MACE: forward and reverse."""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pipeline_kernels.equivariant.contraction import (
    AtomsByElement,
    Polynomial,
    combine_coefficients,
    contract,
    differentiate_contraction,
)
from pipeline_kernels.equivariant.tensor_product.interpolated import (
    Ends,
    differentiate,
    multiply,
)
from pipeline_kernels.hermite import Places
from pipeline_kernels.message import Segments
from pipeline_mace.layers import (
    SILU_GAIN,
    Interaction,
    ProductBasis,
    Readout,
)


class Neighbours(NamedTuple):
    """Atoms and edges of a batch.

    Attributes:
        element: Of each atom, (n_atoms,).
        which: The same, counted among the elements that occur.
        atoms: The same, sorted.
        senders: Of the edges.
        receivers: Of the edges.
        harmonics: (n_edges, (lmax + 1)²).
        places: Where the distances lie between the knots of the splines.
    """

    element: Tensor
    which: Tensor
    atoms: AtomsByElement
    senders: Segments
    receivers: Segments
    harmonics: Tensor
    places: Places


class State(NamedTuple):
    """What a layer has calculated.

    Attributes:
        features: Of the atoms, (n_atoms, components, channels).
        energy: Of the atoms, without scale and shift, (n_atoms,).
        sent: What the edges took, (n_atoms, components, channels).
        messages: What was multiplied, (n_atoms, (lmax + 1)², channels).
    """

    features: Tensor
    energy: Tensor
    sent: Tensor
    messages: Tensor


class CompiledLayer(nn.Module):
    """Interaction, products and readout of a layer.

    Args:
        interaction: In double precision, as all.
        product: Of the same layer.
        readout: Of the same layer.
        table: Splines of the radial weights.
        embedding: The features that the first layer starts from, (n_elements, channels).
    """

    table: Tensor
    coefficients: Tensor
    sent: Tensor
    before: Tensor

    def __init__(
        self,
        interaction: Interaction,
        product: ProductBasis,
        readout: Readout,
        table: Tensor,
        embedding: Tensor | None,
    ) -> None:
        super().__init__()
        self.plan, self.polynomial = interaction.plan, product.polynomial
        self.residual = interaction.residual
        self.is_first = embedding is not None
        self._of_elements: tuple[list[int], Tensor] | None = None
        self.register_buffer("table", table)
        self.up, self.down = deepcopy(interaction.up), deepcopy(interaction.down)
        self.skip, self.linear = deepcopy(interaction.skip), deepcopy(product.linear)
        self.readout = nn.ParameterList(w * len(w) ** -0.5 for w in readout.weights)
        self.register_buffer("coefficients", _combine(product, self.polynomial))
        if embedding is not None:
            self._start(embedding[:, None])

    def _start(self, embedding: Tensor) -> None:
        """Tabulate by element what follows from the first features, which are scalars."""
        assert set(self.down.plan.counts) == {1}
        self.register_buffer("sent", self.up(embedding)[:, 0])
        atoms = AtomsByElement.of(torch.arange(len(embedding)))
        if self.residual:
            self.register_buffer("before", self.skip(embedding, atoms))

    def forward(self, features: Tensor | None, neighbours: Neighbours) -> State:
        """Calculate the layer; without features it is the first."""
        atoms = neighbours.atoms
        if features is None:
            sent = neighbours.harmonics.new_ones(len(neighbours.element), 1, self.sent.shape[1])
            before = self.before[neighbours.element] if self.residual else None
        else:
            sent = self.up(features)
            before = self.skip(features, atoms) if self.residual else None
        splines, ends = self._look_up(neighbours), self._find_ends(neighbours)
        messages = multiply(sent, neighbours.harmonics, *splines, ends)
        if not self.is_first:
            messages = self.down(messages)
        if not self.residual:
            messages = self.skip(messages, atoms)
        products = contract(messages, self._choose(atoms), self.polynomial, atoms)
        features = self.linear(products)
        if before is not None:
            features[:, : before.shape[1]] += before
        return State(features, self._read(features[:, 0]), sent, messages)

    def reverse(
        self, state: State, by_features: Tensor | None, neighbours: Neighbours
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take the derivative of the energy back.

        Args:
            state: Of the layer.
            by_features: Derivative of the energies of later layers by the features of this one;
                None of the last one.
            neighbours: Atoms and edges.

        Returns:
            Derivatives by the features that came in (empty in the first layer), by the harmonics,
            and by the places of the edges between knots.
        """
        by_features = torch.zeros_like(state.features) if by_features is None else by_features
        by_features[:, 0] += self._differentiate_readout(state.features[:, 0])
        atoms = neighbours.atoms
        by_products = self.linear.reverse(by_features)
        by_messages = differentiate_contraction(
            state.messages, self._choose(atoms), by_products, self.polynomial, atoms
        )
        if not self.residual:
            by_messages = self.skip.reverse(by_messages, atoms)
        if not self.is_first:
            by_messages = self.down.reverse(by_messages)
        by_sent, by_Y, by_x = differentiate(
            by_messages,
            state.sent,
            neighbours.harmonics,
            *self._look_up(neighbours),
            self._find_ends(neighbours),
            by_features=not self.is_first,
        )
        if self.is_first:
            return by_sent, by_Y, by_x
        by_input = self.up.reverse(by_sent)
        if self.residual:
            part = by_features[:, : self.residual**2]
            by_input[:, : self.residual**2] += self.skip.reverse(part, atoms)
        return by_input, by_Y, by_x

    def _choose(self, atoms: AtomsByElement) -> Tensor:
        """Return the coefficients of the elements that occur, (n_present, n_terms, channels)."""
        if len(atoms.elements) == len(self.coefficients):
            return self.coefficients
        return self.coefficients[atoms.elements]

    def _find_ends(self, neighbours: Neighbours) -> Ends:
        return Ends(neighbours.senders, neighbours.receivers, self.plan)

    def _look_up(self, neighbours: Neighbours) -> tuple[Tensor, Places]:
        """Return the splines of the radial weights, and where in them edges lie.

        In the first layer there are splines for each element of the sender.
        """
        places = neighbours.places
        if not self.is_first:
            return self.table, places
        shift = neighbours.which[neighbours.senders.index] * len(self.table)
        table = self._tabulate_elements(neighbours.atoms.elements)
        return table, places._replace(first=places.first + shift)

    def _tabulate_elements(self, elements: Tensor) -> Tensor:
        """Multiply the splines with features of the elements that occur and the map of messages.

        Returns:
            One table below the other, (n_present n_rows, n_degrees channels).
        """
        present, last = elements.tolist(), self._of_elements
        if last is None or last[0] != present or last[1].dtype != self.table.dtype:
            pairs = zip(self.down.weights, self.down.factors, strict=True)
            weights = torch.stack([w * factor for w, factor in pairs])  # of degrees
            paths = self.table.unflatten(1, (len(weights), -1)).transpose(0, 1)
            tables = [
                torch.bmm(paths * self.sent[z], weights).transpose(0, 1).flatten(1) for z in present
            ]
            self._of_elements = last = present, torch.cat(tables)
        return last[1]

    def _read(self, scalars: Tensor) -> Tensor:
        """Return energies (n_atoms,) of invariant features (n_atoms, channels)."""
        *hidden, last = self.readout
        for w in hidden:
            scalars = nn.functional.silu(scalars @ w) * SILU_GAIN
        energies: Tensor = scalars @ last[:, 0]
        return energies

    def _differentiate_readout(self, scalars: Tensor) -> Tensor:
        """Return the derivative of `_read`, (n_atoms, channels)."""
        *hidden, last = self.readout
        slopes = []
        for w in hidden:
            z = scalars @ w
            gate = torch.sigmoid(z)
            slopes.append(gate * (1 + z * (1 - gate)) * SILU_GAIN)
            scalars = z * gate * SILU_GAIN
        g: Tensor = last[:, 0].expand(len(scalars), -1)
        for w, slope in zip(reversed(hidden), reversed(slopes), strict=True):
            g = (g * slope) @ w.T
        return g


def _combine(product: ProductBasis, polynomial: Polynomial) -> Tensor:
    every = AtomsByElement.of(torch.arange(len(product.weights)))
    return combine_coefficients(product.weights, polynomial, every)
