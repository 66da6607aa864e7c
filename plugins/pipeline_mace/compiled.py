"""A trained MACE whose weights are constants, with a reverse pass that is written out.

Radial networks become splines of the distance (`radial_tables`), so that neither they nor weights
of edges are calculated. The first layer starts from a table of elements. Couplings and weights of
the products are combined once, linear maps of an element with those before them. Forces need no
record of autograd: each layer knows how to take a derivative by its results back to its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn

from pipeline_core.batch import Batch, count_samples
from pipeline_core.domain import Domain
from pipeline_core.planner import Planner
from pipeline_core.potential import Potential, compute_forces, compute_stress
from pipeline_core.task import Outputs
from pipeline_kernels.equivariant.contraction import AtomsByElement
from pipeline_kernels.equivariant.edges import differentiate_edges, measure_edges
from pipeline_kernels.message import Segments
from pipeline_mace.compiled_layers import CompiledLayer, Neighbours, State
from pipeline_mace.elements import find_elements
from pipeline_mace.layers import Interaction, ProductBasis, Readout
from pipeline_mace.options import MACEOptions
from pipeline_mace.radial_tables import tabulate

KNOWN: Final = frozenset(
    {
        *("channels", "max_l", "lmax", "correlation", "independent_couplings", "layers"),
        *("first_interaction", "interaction", "radial_functions", "radial_features"),
        *("envelope_power", "readout_features", "cutoff", "kernels", "scale_shift"),
    }
)
"""Options that a compiled model follows, whatever their values."""


class CompiledMACE(Potential):
    """What a trained `MACE` predicts, several times as fast; it cannot be trained.

    Args:
        network: The trained `MACE`; it is not changed.
        options: Its sizes.
        elements: Chemical symbols of the elements that it knows.

    Attributes:
        spline_error: Of the radial weights, relative to the largest one of a layer.

    Raises:
        ValueError: The network has something that is not compiled.
    """

    direct = frozenset({"forces", "stress"})
    numbers: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, network: Potential, options: MACEOptions, elements: Sequence[str]) -> None:
        _require_known(options)
        super().__init__(network.predicts)
        exact: Any = deepcopy(network).cpu().double().eval().requires_grad_(False)
        self.options, self.elements = options, tuple(elements)
        self.atom_energies = exact.atom_energies
        for name in ("numbers", "scale", "shift"):
            self.register_buffer(name, getattr(exact, name))
        interactions = cast("list[Interaction]", [*exact.interactions])
        radial = tabulate(exact.radial_basis, [one.radial for one in interactions])
        self.n_intervals, self.spline_error = radial.n_intervals, radial.error
        products = cast("list[ProductBasis]", [*exact.products])
        readouts = cast("list[Readout]", [*exact.readouts])
        parts = zip(interactions, products, readouts, radial.tables, strict=True)
        embedding = exact.embedding * len(exact.embedding) ** -0.5
        with torch.no_grad():
            self.layers = nn.ModuleList(
                CompiledLayer(*part, None if number else embedding)
                for number, part in enumerate(parts)
            )
        self.requires_grad_(False)
        self._planner = Planner(_make_graph, ("atomic_numbers", "edge_index"))

    def energies(self, batch: Batch, vectors: Tensor, domain: Domain | None = None) -> Outputs:
        """Predict energies (n_samples,) eV without the free atoms, forces eV/Å, stress eV/Å³.

        Raises:
            ValueError: An element was not in the training data.
        """
        assert domain is None
        graph = self._planner.plan(batch, self.numbers, self.elements)
        scale = self.n_intervals / self.options.cutoff
        edges = measure_edges(vectors, self.options.lmax, scale, self.n_intervals)
        neighbours = Neighbours(*graph, edges.harmonics, edges.places)
        states, features = [], None
        energy = vectors.new_zeros(len(graph.element))
        for layer in self.layers:
            state = layer(features, neighbours)
            features = state.features
            energy = energy + state.energy
            states.append(state)
        by_harmonics, by_place = self._reverse(states, neighbours)
        gradient = self.scale * differentiate_edges(
            edges, by_harmonics, by_place, self.options.lmax, scale
        )
        energy = self.scale * energy + self.shift
        total = energy.new_zeros(count_samples(batch)).index_add(0, batch["atom_sample"], energy)
        return {
            "energy": total,
            "forces": compute_forces(batch, gradient),
            "stress": compute_stress(batch, vectors, gradient),
        }

    def _reverse(self, states: Sequence[State], neighbours: Neighbours) -> tuple[Tensor, Tensor]:
        """Return the derivatives of the energy by harmonics and places of the edges."""
        by_features: Tensor | None = None
        by_harmonics = torch.zeros_like(neighbours.harmonics)
        by_place = by_harmonics.new_zeros(len(by_harmonics))
        layers = cast("list[CompiledLayer]", [*self.layers])
        for layer, state in zip(reversed(layers), reversed(states), strict=True):
            by_features, by_Y, by_x = layer.reverse(state, by_features, neighbours)
            by_harmonics += by_Y
            by_place += by_x
        return by_harmonics, by_place


class _Graph(NamedTuple):
    """What follows from the atoms of a batch and who neighbours whom."""

    element: Tensor
    which: Tensor
    atoms: AtomsByElement
    senders: Segments
    receivers: Segments


def _make_graph(batch: Batch, numbers: Tensor, elements: Sequence[str]) -> _Graph:
    element = find_elements(batch, numbers, elements)
    receiver, sender = batch["edge_index"].unbind(1)
    n_atoms = len(element)
    ends = Segments.of(sender, n_atoms), Segments.of(receiver, n_atoms)
    atoms = AtomsByElement.of(element)
    return _Graph(element, torch.searchsorted(atoms.elements, element), atoms, *ends)


def _require_known(options: MACEOptions) -> None:
    """Check that a network has nothing that is not compiled.

    Raises:
        ValueError: It has.
    """
    fields = type(options).model_fields
    strange = [
        f"model.{name}"
        for name, field in fields.items()
        if name not in KNOWN
        and getattr(options, name) != field.get_default(call_default_factory=True)
    ]
    if strange:
        raise ValueError(
            f"networks with {', '.join(strange)} are not compiled; use the model without "
            "infer.compile"
        )
