"""A trained MACE whose weights are constants, with a reverse pass that is written out.

Radial networks become splines of the distance (`radial_tables`), so that neither they nor weights
of edges are calculated. The first layer starts from a table of elements. Couplings and weights of
the products are combined once, linear maps of an element with those before them. Forces need no
record of autograd: each layer knows how to take a derivative by its results back to its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from typing import Any, Final, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_core.batch import Batch, count_samples
from pipeline_core.domain import Domain
from pipeline_core.planner import Planner
from pipeline_core.potential import Potential, compute_forces, compute_stress
from pipeline_core.task import Outputs
from pipeline_kernels.equivariant.contraction import AtomsByElement
from pipeline_kernels.equivariant.harmonics import compute_harmonic_slopes, solid_harmonics
from pipeline_kernels.equivariant.tensor_product.interpolated import Places
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
        neighbours, directions, distance = self._measure(graph, vectors)
        states, features = [], None
        energy = vectors.new_zeros(len(graph.element))
        for layer in self.layers:
            state = layer(features, neighbours)
            features = state.features
            energy = energy + state.energy
            states.append(state)
        gradient = self._reverse(states, neighbours, directions, distance)
        energy = self.scale * energy + self.shift
        total = energy.new_zeros(count_samples(batch)).index_add(0, batch["atom_sample"], energy)
        return {
            "energy": total,
            "forces": compute_forces(batch, gradient),
            "stress": compute_stress(batch, vectors, gradient),
        }

    def _measure(self, graph: _Graph, vectors: Tensor) -> tuple[Neighbours, Tensor, Tensor]:
        """Return the edges as layers take them, directions (n_edges, 3) and distances."""
        distance = torch.linalg.vector_norm(vectors, dim=1)
        directions = vectors / -distance[:, None]  # from sender to receiver
        harmonics = _compute_harmonics(directions, self.options.lmax)
        places = Places.of(distance * (self.n_intervals / self.options.cutoff), self.n_intervals)
        neighbours = Neighbours(*graph, harmonics, places)
        return neighbours, directions, distance

    def _reverse(
        self,
        states: Sequence[State],
        neighbours: Neighbours,
        directions: Tensor,
        distance: Tensor,
    ) -> Tensor:
        """Return the derivative of the energy by the vectors of the edges, (n_edges, 3)."""
        by_features: Tensor | None = None
        by_harmonics = torch.zeros_like(neighbours.harmonics)
        by_place = torch.zeros_like(distance)
        layers = cast("list[CompiledLayer]", [*self.layers])
        for layer, state in zip(reversed(layers), reversed(states), strict=True):
            by_features, by_Y, by_x = layer.reverse(state, by_features, neighbours)
            by_harmonics += by_Y
            by_place += by_x
        derivatives = _differentiate_harmonics(self.options.lmax).to(by_harmonics)
        rows = (by_harmonics @ derivatives).unflatten(1, (3, -1))
        by_direction = torch.einsum("ekm,em->ek", rows, neighbours.harmonics)
        radial = by_place * (-self.n_intervals / self.options.cutoff)
        across = by_direction - (by_direction * directions).sum(1, keepdim=True) * directions
        gradient: Tensor = radial[:, None] * directions - across / distance[:, None]
        return self.scale * gradient


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


def _compute_harmonics(directions: Tensor, lmax: int) -> Tensor:
    """Return the harmonics of `pipeline_mace.basis`, of unit vectors."""
    return solid_harmonics(directions.roll(1, dims=1), lmax)


@cache
def _differentiate_harmonics(lmax: int) -> Tensor:
    """Return D such that d Y_a / d u_k = sum_b D[a, k b] Y_b, (n, 3 n) float64."""
    # The harmonics are those of (z, x, y).
    D = np.roll(compute_harmonic_slopes(lmax), -1, axis=0)
    return torch.from_numpy(D).transpose(0, 1).flatten(1).contiguous()


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
