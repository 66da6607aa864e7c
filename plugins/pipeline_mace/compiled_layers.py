"""The layers of a compiled MACE: forward and reverse."""

from __future__ import annotations

from collections.abc import Sequence
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
    Places,
    differentiate,
    multiply,
)
from pipeline_kernels.message import Segments
from pipeline_mace.layers import (
    SILU_GAIN,
    Interaction,
    ProductBasis,
    Readout,
)
from pipeline_mace.linear import DegreeLinear, ElementLinear


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
        self.counts, self.residual = interaction.down.plan.counts, interaction.residual
        self.is_first = embedding is not None
        self._of_elements: tuple[list[int], Tensor] | None = None
        self.register_buffer("table", table)
        self.up = _scale(interaction.up)
        self.down = _scale(interaction.down, 1 / interaction.average_neighbours)
        self.skip = _scale_by_element(interaction.skip)
        self.linear = _scale(product.linear)
        self.readout = nn.ParameterList(w * len(w) ** -0.5 for w in readout.weights)
        self.register_buffer("coefficients", _combine(product, self.polynomial))
        if embedding is not None:
            self._start(embedding[:, None])

    def _start(self, embedding: Tensor) -> None:
        """Tabulate by element what follows from the first features, which are scalars."""
        assert set(self.counts) == {1}
        self.register_buffer("sent", _map(embedding, self.up)[:, 0])
        atoms = AtomsByElement.of(torch.arange(len(embedding)))
        if self.residual:
            self.register_buffer("before", _map_elements(embedding, self.skip, atoms))

    def forward(self, features: Tensor | None, neighbours: Neighbours) -> State:
        """Calculate the layer; without features it is the first."""
        atoms = neighbours.atoms
        if features is None:
            sent = neighbours.harmonics.new_ones(len(neighbours.element), 1, self.sent.shape[1])
            before = self.before[neighbours.element] if self.residual else None
        else:
            sent = _map(features, self.up)
            before = _map_elements(features, self.skip, atoms) if self.residual else None
        splines, ends = self._look_up(neighbours), self._find_ends(neighbours)
        messages = multiply(sent, neighbours.harmonics, *splines, ends)
        if not self.is_first:
            messages = self._mix_paths(messages)
        if not self.residual:
            messages = _map_elements(messages, self.skip, atoms)
        products = contract(messages, self._choose(atoms), self.polynomial, atoms)
        features = _map(products, self.linear)
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
        by_products = _map(by_features, [w.T for w in self.linear])
        by_messages = differentiate_contraction(
            state.messages, self._choose(atoms), by_products, self.polynomial, atoms
        )
        if not self.residual:
            by_messages = _map_elements(by_messages, self.skip.mT, atoms)
        if not self.is_first:
            by_messages = self._mix_back(by_messages)
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
        by_input = _map(by_sent, [w.T for w in self.up])
        if self.residual:
            part = by_features[:, : self.residual**2]
            by_input[:, : self.residual**2] += _map_elements(part, self.skip.mT, atoms)
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
            weights = torch.stack([*self.down])  # (n_degrees, channels, channels)
            paths = self.table.unflatten(1, (len(weights), -1)).transpose(0, 1)
            tables = [
                torch.bmm(paths * self.sent[z], weights).transpose(0, 1).flatten(1) for z in present
            ]
            self._of_elements = last = present, torch.cat(tables)
        return last[1]

    def _mix_paths(self, summed: Tensor) -> Tensor:
        """Map the sums of all paths to messages (n_atoms, (lmax + 1)², channels)."""
        sizes = [n * (2 * degree + 1) for degree, n in enumerate(self.counts)]
        parts = zip(summed.split(sizes, dim=1), self.counts, self.down, strict=True)
        by_component = [
            (part.unflatten(1, (n, -1)).transpose(1, 2).flatten(2), w) for part, n, w in parts
        ]
        return torch.cat([_multiply(x, w) for x, w in by_component], dim=1)

    def _mix_back(self, by_messages: Tensor) -> Tensor:
        """Take derivatives by messages back to the sums of each path."""
        degrees = [2 * degree + 1 for degree in range(len(self.counts))]
        parts = zip(by_messages.split(degrees, dim=1), self.counts, self.down, strict=True)
        return torch.cat(
            [
                _multiply(g, w.T).unflatten(2, (n, -1)).transpose(1, 2).flatten(1, 2)
                for g, n, w in parts
            ],
            dim=1,
        )

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


def _scale(linear: DegreeLinear, factor: float = 1.0) -> nn.ParameterList:
    return nn.ParameterList(w * (factor * len(w) ** -0.5) for w in linear.weights)


def _scale_by_element(linear: ElementLinear) -> nn.Parameter:
    """Return (n_degrees, n_elements, channels, channels)."""
    _, n_elements, channels, _ = linear.weights.shape
    return nn.Parameter(linear.weights * (channels * n_elements) ** -0.5)


def _combine(product: ProductBasis, polynomial: Polynomial) -> Tensor:
    every = AtomsByElement.of(torch.arange(len(product.weights)))
    return combine_coefficients(product.weights, polynomial, every)


def _map(features: Tensor, weights: Sequence[Tensor] | nn.ParameterList) -> Tensor:
    """Map the channels of each degree that has weights."""
    parts = features[:, : len(weights) ** 2].split(
        [2 * degree + 1 for degree in range(len(weights))], dim=1
    )
    mapped = [_multiply(part, w) for part, w in zip(parts, weights, strict=True)]
    return mapped[0] if len(mapped) == 1 else torch.cat(mapped, dim=1)


def _multiply(features: Tensor, weights: Tensor) -> Tensor:
    """Multiply (n, components, a) with (a, b), in one product instead of n small ones."""
    n, components, _ = features.shape
    return (features.reshape(n * components, -1) @ weights).view(n, components, -1)


def _map_elements(features: Tensor, weights: Tensor, atoms: AtomsByElement) -> Tensor:
    """Map the channels of each degree by weights (n_degrees, n_elements, channels, channels)."""
    mapped = features.new_empty(len(features), len(weights) ** 2, features.shape[2])
    for z, rows in _list_atoms(atoms):
        mapped[rows] = _map(features[rows, : mapped.shape[1]], weights[:, z].unbind(0))
    return mapped


def _list_atoms(atoms: AtomsByElement) -> list[tuple[int, Tensor]]:
    """Return the atoms of each element that occurs."""
    which, first, end = atoms.chunks.unbind(1)
    counts = which.new_zeros(len(atoms.elements)).index_add(0, which, end - first).tolist()
    return list(zip(atoms.elements.tolist(), atoms.order.split(counts), strict=True))
