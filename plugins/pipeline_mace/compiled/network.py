"""Compiled MACE for inference."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple, cast

import torch
from ase.data import atomic_numbers
from torch import Tensor, nn

from pipeline_atoms.domain import Domain
from pipeline_atoms.potential.elements import find_elements
from pipeline_atoms.potential.planner import Planner
from pipeline_atoms.potential.potential import Potential, compute_forces, compute_stress
from pipeline_core.batch import Batch, count_samples
from pipeline_core.task import Outputs
from pipeline_kernels.equivariant.contraction import AtomsByElement
from pipeline_kernels.equivariant.edges import differentiate_edges, measure_edges
from pipeline_kernels.hermite import Places
from pipeline_kernels.message import Segments
from pipeline_mace.compiled.edges import Densities, repel
from pipeline_mace.compiled.layers import CompiledLayer, Neighbours, State, Weights
from pipeline_mace.compiled.readout import CompiledReadout
from pipeline_mace.compiled.splines import RadialNetworks, Tables
from pipeline_mace.options import MACEOptions


class CompiledMACE(Potential):
    """Equivalent of a trained `MACE`, several times as fast; it cannot be trained.

    Splines are made for the elements of the first structures, and made again when others occur.

    Args:
        network: The trained `MACE`; it is not changed.
        options: Options of the network.
        elements: Chemical symbols of its elements.

    Attributes:
        spline_error: Error of the radial weights, relative to the largest weight of a layer.

    Raises:
        ValueError: The radial networks vary too fast for splines.
    """

    direct = frozenset({"forces", "stress"})
    takes_domains = True
    numbers: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, network: Potential, options: MACEOptions, elements: Sequence[str]) -> None:
        super().__init__(network.predicts, options.heads)
        exact: Any = deepcopy(network).cpu().double().eval().requires_grad_(False)
        self.options, self.elements = options, tuple(elements)
        self.atom_energies = exact.atom_energies
        if self.head_names:
            self.further_energies = exact.further_energies
        for name in ("numbers", "scale", "shift"):
            self.register_buffer(name, getattr(exact, name))
        self.repulsion = exact.repulsion
        self._networks = RadialNetworks(exact.radial_basis, exact.transform, [*exact.interactions])
        embedding = exact.embedding * len(exact.embedding) ** -0.5
        readouts = [CompiledReadout(one, options.gate) for one in exact.readouts]
        parts = zip(exact.interactions, exact.products, readouts, strict=True)
        with torch.no_grad():
            self.layers = nn.ModuleList(
                CompiledLayer(*part, None if number else embedding)
                for number, part in enumerate(parts)
            )
        self.requires_grad_(False)
        self._planner = Planner(_make_graph, ("atomic_numbers", "atom_sample", "edge_index"))
        self._tables: Tables | None = None
        self._last: tuple[tuple[list[int], torch.dtype], Tables] | None = None
        self._find_splines(torch.arange(1), self.scale.dtype)  # raise early

    @property
    def spline_error(self) -> float:
        """Error of the radial weights, relative to the largest weight of a layer."""
        assert self._last is not None
        return self._last[1].error

    def energies(self, batch: Batch, vectors: Tensor, domain: Domain | None = None) -> Outputs:
        """Predict energies (n_samples,) eV without the free atoms, forces eV/Å, stress eV/Å³.

        With domain decomposition, ranks exchange the features of atoms between layers (halo
        exchange), and their derivatives.

        Raises:
            ValueError: An element was not in the training data.
        """
        graph = self._planner.plan(batch, self.numbers)
        splines = self._find_splines(graph.present, vectors.dtype)
        lmax, scale = self.options.lmax, splines.n_intervals / self._networks.basis.cutoff
        edges = measure_edges(vectors, lmax, scale, splines.n_intervals)
        head = self.find_heads(batch)
        factors = self._find_factors(head, len(graph.atoms.order))
        ends = graph.senders, graph.receivers
        neighbours = Neighbours(graph.element, graph.atoms, *ends, edges.harmonics, factors, domain)
        densities = self._measure_densities(splines, edges.distance * scale, graph)
        states = self._calculate(splines, edges.places, densities, graph, neighbours)
        energy = torch.stack([state.energy for state in states]).sum(0)
        by_harmonics, by_place = self._reverse(states, densities, neighbours)
        if self.repulsion is not None:
            pairs, by_distance = repel(self.repulsion, edges.distance, batch, factors.sum(1))
            energy, by_place = energy + pairs, by_place.add_(by_distance / scale)
        gradient = differentiate_edges(edges, by_harmonics, by_place, lmax, scale)
        energy = energy + (self.shift if head is None else self.shift[head])
        total = energy.new_zeros(count_samples(batch)).index_add(0, batch["atom_sample"], energy)
        return {
            "energy": total,
            "forces": compute_forces(batch, gradient),
            "stress": compute_stress(batch, vectors, gradient),
        }

    def _find_factors(self, head: Tensor | None, n_atoms: int) -> Tensor:
        """Return the factors on the energies of each head, (n_atoms, heads)."""
        if head is None:
            return self.scale.expand(n_atoms, 1)
        factors = self.scale.new_zeros(n_atoms, len(self.scale))
        return factors.scatter_(1, head[:, None], self.scale[head][:, None])

    def _calculate(
        self,
        splines: Tables,
        places: Places,
        densities: Densities | None,
        graph: _Graph,
        neighbours: Neighbours,
    ) -> list[State]:
        """Return the results of all layers."""
        states: list[State] = []
        has_pairs = self._networks.transform is not None
        for number, (layer, table) in enumerate(zip(self.layers, splines.layers, strict=True)):
            kinds = graph.pairs if has_pairs else None if number else graph.of_senders
            shift = 0 if kinds is None else kinds * splines.n_rows
            divisors = None if densities is None else densities.divisors(number)
            weights = Weights(table, places._replace(first=places.first + shift), divisors)
            features = states[-1].features if states else None
            states.append(layer(features, weights, neighbours))
        return states

    def _reverse(
        self, states: Sequence[State], densities: Densities | None, neighbours: Neighbours
    ) -> tuple[Tensor, Tensor]:
        """Return the derivatives of the energy by harmonics and places of the edges."""
        by_features: Tensor | None = None
        by_harmonics = torch.zeros_like(neighbours.harmonics)
        by_place = by_harmonics.new_zeros(len(by_harmonics))
        by_divisors = []
        layers = cast("list[CompiledLayer]", [*self.layers])
        for layer, state in zip(reversed(layers), reversed(states), strict=True):
            g = layer.reverse(state, by_features, neighbours)
            by_features = g.features
            by_harmonics += g.harmonics
            by_place += g.places
            if g.divisors is not None:
                by_divisors.append(g.divisors)
        if densities is not None:
            by_place += densities.reverse(by_divisors[::-1])
        return by_harmonics, by_place

    def _tabulate(self, numbers: Sequence[int]) -> Tables:
        """Return the tables for elements that occur; without a transform they are always the same.

        Raises:
            ValueError: The radial networks vary too fast for splines.
        """
        if self._networks.transform is not None:
            return self._networks.tabulate(numbers)
        if self._tables is None:
            self._tables = self._networks.tabulate(numbers)
        return self._tables

    def _measure_densities(
        self, splines: Tables, places: Tensor, graph: _Graph
    ) -> Densities | None:
        if splines.densities is None:
            return None
        kinds = None if self._networks.transform is None else graph.pairs
        return Densities(splines.densities, places, kinds, splines.n_intervals + 1, graph.receivers)

    def _find_splines(self, elements: Tensor, dtype: torch.dtype) -> Tables:
        """Return the splines for elements that occur, cached if they equal those of the last call.

        Raises:
            ValueError: The radial networks vary too fast for splines.
        """
        key = elements.tolist(), dtype
        if self._last is None or self._last[0] != key:
            numbers = [atomic_numbers[self.elements[place]] for place in key[0]]
            made = self._tabulate(numbers)
            layers = zip(cast("list[CompiledLayer]", [*self.layers]), made.layers, strict=True)
            with torch.no_grad():
                tables = [
                    layer.finish_table(table, elements, made.n_rows).to(dtype)
                    for layer, table in layers
                ]
            densities = None if made.densities is None else made.densities.to(dtype)
            self._last = key, made._replace(layers=tables, densities=densities)
        return self._last[1]


class _Graph(NamedTuple):
    """Elements and edges of a batch.

    Attributes:
        element: Element of each atom; in a domain, ghost atoms follow own ones.
        present: The elements that occur.
        atoms: Own atoms, by element.
        senders: Senders of the edges.
        receivers: Receivers of the edges.
        of_senders: Elements of senders among those that occur, (n_edges,).
        pairs: Elements of receivers and senders as one number, (n_edges,).
    """

    element: Tensor
    present: Tensor
    atoms: AtomsByElement
    senders: Segments
    receivers: Segments
    of_senders: Tensor
    pairs: Tensor


def _make_graph(batch: Batch, numbers: Tensor) -> _Graph:
    element = find_elements(batch["atomic_numbers"], numbers)
    receiver, sender = batch["edge_index"].unbind(1)
    n_own = len(batch["atom_sample"])
    ends = Segments.of(sender, len(element)), Segments.of(receiver, n_own)
    present = element.unique() if len(element) else element.new_zeros(1)
    which = torch.searchsorted(present, element)
    pairs = which[receiver] * len(present) + which[sender]
    own = AtomsByElement.of(element[:n_own])
    return _Graph(element, present, own, *ends, which[sender], pairs)
