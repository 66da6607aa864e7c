"""The MACE potential, with scaled and shifted energies."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from ase.data import atomic_numbers
from torch import Tensor, nn

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domain import Domain
from pipeline_atoms.potential.elements import find_elements, number_elements
from pipeline_atoms.potential.planner import Planner
from pipeline_atoms.potential.potential import Potential, select_head
from pipeline_core.batch import Batch, count_samples
from pipeline_core.task import Outputs
from pipeline_kernels.equivariant.contraction import AtomsByElement, Polynomial
from pipeline_kernels.message import segment_sum
from pipeline_mace.model.basis import (
    AgnesiTransform,
    PairRepulsion,
    RadialBasis,
    compute_spherical_harmonics,
)
from pipeline_mace.model.edges import FIELDS, plan_edges
from pipeline_mace.model.kernels import KERNELS
from pipeline_mace.model.layers import Interaction, ProductBasis, Readout
from pipeline_mace.model.sparsity import make_plan
from pipeline_mace.options import MACEOptions


@dataclass(frozen=True)
class Facts:
    """Properties of the training data that a network depends on.

    Attributes:
        elements: Chemical symbols, in the order of their weights.
        average_neighbours: Average number of edges of an atom.
    """

    elements: tuple[str, ...]
    average_neighbours: float


class MACE(Potential):
    """The potential of Batatia et al., arXiv:2206.07697.

    E = Σ_i (E0_i + scale (Σ_t R_t(h_i^t) + Σ_j V_ij) + shift), with the features h^t after layer t
    and the repulsion V of pairs, if the network has it. Scale and shift are 1 and 0 unless they
    are set. Each of several heads has its own readouts, scale, shift and E0: `head` of a batch,
    (n_samples,), is the number of the head for each sample; where it is absent, `self.head`.

    Args:
        options: Sizes of the network.
        facts: Properties of the training data.
        graph: Cutoff of the edges, at which the radial basis ends.

    Raises:
        ValueError: Representations cannot be formed.
    """

    takes_domains = True
    numbers: Tensor
    scale: Tensor
    shift: Tensor
    transform: AgnesiTransform | None
    repulsion: PairRepulsion | None

    def __init__(self, options: MACEOptions, facts: Facts, graph: GraphOptions) -> None:
        super().__init__(head_names=options.heads)
        self.options, self.facts, self.graph = options, facts, graph
        n_elements, channels = len(facts.elements), options.channels
        n_heads = len(options.heads)
        numbers = [atomic_numbers[symbol] for symbol in facts.elements]
        self.register_buffer("numbers", number_elements(numbers), persistent=False)
        self.register_buffer("scale", torch.ones(() if n_heads == 1 else n_heads))
        self.register_buffer("shift", torch.zeros(() if n_heads == 1 else n_heads))
        self.embedding = nn.Parameter(torch.randn(n_elements, channels))
        self.radial_basis = RadialBasis(
            options.radial_functions, graph.cutoff, options.envelope_power
        )
        self.transform = AgnesiTransform() if options.distance_transform == "agnesi" else None
        self.repulsion = PairRepulsion(options.envelope_power) if options.pair_repulsion else None
        self.interactions, self.products = nn.ModuleList(), nn.ModuleList()
        self.readouts = nn.ModuleList()
        kernels = KERNELS[options.kernels]
        for layer in range(options.layers):
            is_last = layer == options.layers - 1
            n_out = 1 if is_last else options.max_l + 1
            kind = options.interaction if layer else options.first_interaction
            plan = make_plan(options, layer)
            self.interactions.append(
                Interaction(
                    plan,
                    options,
                    facts.average_neighbours,
                    n_elements,
                    min(n_out, len(plan.irreps_in)) if kind == "residual" else 0,
                )
            )
            self.products.append(
                ProductBasis(_make_polynomial(options, n_out), channels, n_elements, kernels)
            )
            hidden = options.readout_features if is_last else 0
            self.readouts.append(Readout(channels, hidden, n_heads, options.gate))
        self._planner = Planner(plan_edges, FIELDS)

    def energies(self, batch: Batch, vectors: Tensor, domain: Domain | None = None) -> Outputs:
        """Predict the energy of each structure without the free atoms, (n_samples,) eV.

        With domain decomposition, ranks exchange ghost atom features between layers.

        Raises:
            ValueError: An element was not in the training data.
        """
        element = find_elements(batch["atomic_numbers"], self.numbers)
        n_own = len(batch["atom_sample"])  # ghost atoms of a domain follow
        atoms = AtomsByElement.of(element[:n_own])
        edges = self._planner.plan(batch)
        # MACE evaluates harmonics of the vector from sender to receiver.
        edge_harmonics = compute_spherical_harmonics(-vectors, self.options.lmax)
        distance = torch.linalg.vector_norm(vectors, dim=1)
        ends = _find_ends(batch)
        radial = self._expand_distances(edges.select(distance), [*map(edges.select, ends)])
        # As in e3nn, where it is a linear map of a one-hot vector.
        features = (self.embedding * len(self.embedding) ** -0.5)[element][:, None]
        head = self.find_heads(batch)
        energy = vectors.new_zeros(n_own)
        if self.repulsion is not None:
            pairs = self.repulsion(distance, ends)[:, None]
            energy = energy + segment_sum(pairs, edges.graph.receivers)[:, 0]
        blocks = zip(self.interactions, self.products, self.readouts, strict=True)
        for number, (interaction, product, readout) in enumerate(blocks):
            # The first features depend on elements alone, which ghost atoms have, too.
            exchanging = domain if number else None
            messages, before = interaction(
                features, edge_harmonics, radial, edges, atoms, exchanging
            )
            features = product(messages, atoms)
            if before is not None:
                features = features + _pad(before, features)
            energy = energy + select_head(readout(features[:, 0]), head)
        scale, shift = (x if head is None else x[head] for x in (self.scale, self.shift))
        energy = scale * energy + shift
        total = energy.new_zeros(count_samples(batch))
        return {"energy": total.index_add(0, batch["atom_sample"], energy)}

    def _expand_distances(self, distance: Tensor, ends: Sequence[Tensor]) -> Tensor:
        """Return radial functions of distances between two atomic numbers, (n, functions)."""
        transformed = None if self.transform is None else self.transform(distance, ends)
        radial: Tensor = self.radial_basis(distance, transformed)
        return radial

    def compile_inference(self) -> Potential:
        """Return the same potential with its weights as constants (`compiled`)."""
        from pipeline_mace.compiled import CompiledMACE

        return CompiledMACE(self, self.options, self.facts.elements)


def _find_ends(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the atomic numbers of both atoms of each edge, (n_edges,)."""
    receiver, sender = batch["atomic_numbers"][batch["edge_index"]].unbind(1)
    return receiver, sender


def _make_polynomial(options: MACEOptions, n_out: int) -> Polynomial:
    """Return the products of a layer with `n_out` output degrees."""
    irreps = make_plan(options, 0).irreps_out
    return Polynomial(irreps, irreps[:n_out], options.correlation, options.independent_couplings)


def _pad(before: Tensor, features: Tensor) -> Tensor:
    """Return features of fewer degrees with zeros for the others."""
    lacking = features.shape[1] - before.shape[1]
    return nn.functional.pad(before, (0, 0, 0, lacking)) if lacking else before
