"""Layers of a compiled MACE, forward and reverse."""

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pipeline_atoms.domain import Domain
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
from pipeline_mace.compiled.readout import CompiledReadout
from pipeline_mace.model.layers import Interaction, ProductBasis


class Neighbours(NamedTuple):
    """Atoms and edges of a batch, or of a domain, whose own atoms come before ghost atoms.

    Attributes:
        element: Elements of all atoms, (n_all,).
        atoms: Own atoms, sorted by element.
        senders: Senders of the edges.
        receivers: Receivers of the edges.
        harmonics: (n_edges, (lmax + 1)²).
        factors: Factors on the energy of an atom from each head, (n_atoms, heads).
        domain: The domain, if there is one.
    """

    element: Tensor
    atoms: AtomsByElement
    senders: Segments
    receivers: Segments
    harmonics: Tensor
    factors: Tensor
    domain: Domain | None


class Weights(NamedTuple):
    """Weights of the edges in one layer, as splines.

    Attributes:
        table: Splines, one table below the other.
        places: Places of the edges in the table.
        divisors: Divisors of the messages of each atom, (n_atoms, 1, 1), or None.
    """

    table: Tensor
    places: Places
    divisors: Tensor | None


class State(NamedTuple):
    """Results of a layer for its reverse pass.

    Attributes:
        features: Features of the atoms, (n_atoms, components, channels).
        energy: Energies of the atoms, (n_atoms,).
        sent: Features that edges gather, (n_all, components, channels).
        messages: Inputs of the products, (n_atoms, (lmax + 1)², channels).
        divided: Messages after the division, if there is one.
        weights: Weights of the edges.
    """

    features: Tensor
    energy: Tensor
    sent: Tensor
    messages: Tensor
    divided: Tensor | None
    weights: Weights


class Derivatives(NamedTuple):
    """Derivatives of the energy by the inputs of a layer.

    Attributes:
        features: By input features, (n_atoms, components, channels); empty in the first layer.
        harmonics: (n_edges, (lmax + 1)²).
        places: By places of the edges between knots, (n_edges,).
        divisors: (n_atoms,), or None.
    """

    features: Tensor
    harmonics: Tensor
    places: Tensor
    divisors: Tensor | None


class CompiledLayer(nn.Module):
    """Interaction, products and readout of a layer.

    Args:
        interaction: Interaction of the layer, in double precision as the others.
        product: Products of the same layer.
        readout: Readout of the same layer.
        embedding: Initial features, for the first layer, (n_elements, channels).
    """

    coefficients: Tensor
    sent: Tensor
    before: Tensor

    def __init__(
        self,
        interaction: Interaction,
        product: ProductBasis,
        readout: CompiledReadout,
        embedding: Tensor | None,
    ) -> None:
        super().__init__()
        self.plan, self.polynomial = interaction.plan, product.polynomial
        self.residual = interaction.residual
        self.is_first = embedding is not None
        self.up, self.down = deepcopy(interaction.up), deepcopy(interaction.down)
        self.skip, self.linear = deepcopy(interaction.skip), deepcopy(product.linear)
        self.readout = readout
        self.register_buffer("coefficients", _combine(product, self.polynomial))
        if embedding is not None:
            self._start(embedding[:, None])

    def _start(self, embedding: Tensor) -> None:
        """Tabulate results by element for the first layer, whose features are scalars."""
        assert set(self.down.plan.counts) == {1}
        self.register_buffer("sent", self.up(embedding)[:, 0])
        atoms = AtomsByElement.of(torch.arange(len(embedding)))
        if self.residual:
            self.register_buffer("before", self.skip(embedding, atoms))

    def finish_table(self, table: Tensor, elements: Tensor, n_rows: int) -> Tensor:
        """Return the splines of the layer.

        In the first layer, whose features depend on the sender's element alone, weights are
        multiplied with these features and with the map of the messages: there is a table for each
        pair of elements, or for each element of senders.

        Args:
            table: Splines of radial weights, see `splines.Tables`.
            elements: Elements that occur, (n_present,).
            n_rows: Rows of the table of a pair.
        """
        if not self.is_first:
            return table
        blocks = table.split(n_rows)
        senders = self.sent[elements].to(table)
        if len(blocks) == 1:
            blocks *= len(senders)
        pairs = zip(self.down.weights, self.down.factors, strict=True)
        maps = torch.stack([w * factor for w, factor in pairs]).to(table)  # of degrees
        finished = []
        for number, block in enumerate(blocks):
            paths = block.unflatten(1, (len(maps), -1)).transpose(0, 1)
            sent = paths * senders[number % len(senders)]
            finished.append(torch.bmm(sent, maps).transpose(0, 1).flatten(1))
        return torch.cat(finished)

    def forward(self, features: Tensor | None, weights: Weights, neighbours: Neighbours) -> State:
        """Calculate the layer; the first layer is given no features."""
        atoms = neighbours.atoms
        sent, before = self._send(features, neighbours)
        ends = self._find_ends(neighbours)
        messages = multiply(sent, neighbours.harmonics, weights.table, weights.places, ends)
        if not self.is_first:
            messages = self.down(messages)
        divided = None
        if weights.divisors is not None:
            messages = divided = messages / weights.divisors
        if not self.residual:
            messages = self.skip(messages, atoms)
        products = contract(messages, self._choose(atoms), self.polynomial, atoms)
        features = self.linear(products)
        if before is not None:
            features[:, : before.shape[1]] += before
        energy = self.readout(features[:, 0], neighbours.factors)
        return State(features, energy, sent, messages, divided, weights)

    def _send(
        self, features: Tensor | None, neighbours: Neighbours
    ) -> tuple[Tensor, Tensor | None]:
        """Return the features that edges gather, (n_all, components, channels), and residuals."""
        if features is None:
            element, n_own = neighbours.element, len(neighbours.atoms.order)
            sent = neighbours.harmonics.new_ones(len(element), 1, self.sent.shape[1])
            return sent, self.before[element[:n_own]] if self.residual else None
        sent, domain = self.up(features), neighbours.domain
        request = None if domain is None else domain.start(sent)
        before = self.skip(features, neighbours.atoms) if self.residual else None
        return sent if request is None else request.wait(), before

    def reverse(
        self, state: State, by_features: Tensor | None, neighbours: Neighbours
    ) -> Derivatives:
        """Return the derivatives of the energy by the inputs of the layer.

        Args:
            state: Results of the layer.
            by_features: Derivative of the energies of later layers by the features of this one;
                None in the last layer.
            neighbours: Atoms and edges.
        """
        by_features = torch.zeros_like(state.features) if by_features is None else by_features
        by_features[:, 0] += self.readout.reverse(state.features[:, 0], neighbours.factors)
        by_messages, by_divisors = self._reverse_products(state, by_features, neighbours.atoms)
        if not self.is_first:
            by_messages = self.down.reverse(by_messages)
        by_sent, by_Y, by_x = differentiate(
            by_messages,
            state.sent,
            neighbours.harmonics,
            state.weights.table,
            state.weights.places,
            self._find_ends(neighbours),
            by_features=not self.is_first,
        )
        if self.is_first:
            return Derivatives(by_sent, by_Y, by_x, by_divisors)
        if neighbours.domain is not None:
            by_sent = neighbours.domain.collect(by_sent)
        by_input = self.up.reverse(by_sent)
        if self.residual:
            part = by_features[:, : self.residual**2]
            by_input[:, : self.residual**2] += self.skip.reverse(part, neighbours.atoms)
        return Derivatives(by_input, by_Y, by_x, by_divisors)

    def _reverse_products(
        self, state: State, by_features: Tensor, atoms: AtomsByElement
    ) -> tuple[Tensor, Tensor | None]:
        """Return derivatives by the messages before their division, and by the divisors."""
        by_products = self.linear.reverse(by_features)
        by_messages = differentiate_contraction(
            state.messages, self._choose(atoms), by_products, self.polynomial, atoms
        )
        if not self.residual:
            by_messages = self.skip.reverse(by_messages, atoms)
        divisors = state.weights.divisors
        if divisors is None or state.divided is None:
            return by_messages, None
        by_messages = by_messages / divisors
        return by_messages, -(by_messages * state.divided).sum((1, 2))

    def _choose(self, atoms: AtomsByElement) -> Tensor:
        """Return the coefficients of the elements that occur, (n_present, n_terms, channels)."""
        if len(atoms.elements) == len(self.coefficients):
            return self.coefficients
        return self.coefficients[atoms.elements]

    def _find_ends(self, neighbours: Neighbours) -> Ends:
        return Ends(neighbours.senders, neighbours.receivers, self.plan)


def _combine(product: ProductBasis, polynomial: Polynomial) -> Tensor:
    every = AtomsByElement.of(torch.arange(len(product.weights)))
    return combine_coefficients(product.weights, polynomial, every)
