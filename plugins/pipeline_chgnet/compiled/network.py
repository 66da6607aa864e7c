"""Compiled CHGNet for inference."""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from pipeline_atoms.domain import Domain
from pipeline_atoms.potential.planner import Planner
from pipeline_atoms.potential.potential import Potential, compute_forces, compute_stress
from pipeline_chgnet.compiled.blocks import Convolutions, Inputs, State
from pipeline_chgnet.compiled.geometry import Geometry, Plan
from pipeline_chgnet.compiled.readout import CompiledReadout
from pipeline_chgnet.compiled.splines import Splines
from pipeline_chgnet.model.heads import Features
from pipeline_chgnet.model.topology import Topology, check_batch
from pipeline_core.batch import Batch, count_samples
from pipeline_core.task import Outputs


class CompiledCHGNet(Potential):
    """Faster equivalent of a trained `CHGNet`; it cannot be trained.

    Args:
        network: The trained network; it is not changed.

    Attributes:
        spline_error: Largest error of the splines, relative to the largest number of its group.

    Raises:
        ValueError: Its basis functions vary too fast for splines.
    """

    direct = frozenset({"forces", "stress"})
    exact_vectors = True
    takes_domains = True

    def __init__(self, network: Potential) -> None:
        super().__init__(network.predicts, network.head_names)
        exact: Any = deepcopy(network).cpu().double().eval().requires_grad_(False)
        self.atom_energies = exact.atom_energies
        if self.head_names:
            self.further_energies = exact.further_energies
        self.heads, self.magmom, self.embedding = exact.heads, exact.magmom, exact.atom_embedding
        self.convolutions = Convolutions(exact)
        self.readout = CompiledReadout(exact.readout_norm, [exact.readout, *exact.further_readouts])
        splines = self.bonds, self.short, self.angles = (
            _tabulate_bonds(exact),
            _tabulate_short(exact),
            _tabulate_angles(exact),
        )
        self.spline_error = max(one.error for one in splines)
        self.requires_grad_(False)
        self._planner = Planner(Plan.of, Topology.FIELDS)

    def energies(self, batch: Batch, vectors: Tensor, domain: Domain | None = None) -> Outputs:
        """Predict the outputs of `CHGNet.energies`, and forces and stress.

        With a domain, ranks exchange the same rows as in `CHGNet`, and derivatives by them.

        Raises:
            ValueError: An element is beyond plutonium, or the batch has no bond graph.
        """
        check_batch(batch)
        plan = self._planner.plan(batch, domain)
        geometry = Geometry.of(vectors, plan)
        inputs, all_bonds = self._interpolate(geometry, plan)
        free = self.embedding(batch["atomic_numbers"] - 1)
        atoms, before, records = self.convolutions(free, inputs, plan)
        del inputs  # the reverse pass reads them from the records, and frees them
        sites, by_atoms = self.readout(atoms, self.find_heads(batch))
        energy = sites.new_zeros(count_samples(batch)).index_add(0, batch["atom_sample"], sites)
        outputs = {
            "energy": energy,
            "magmoms": self.magmom(plan.take_own(before.atoms)).squeeze(1).abs(),
        }
        if self.heads is not None:
            bonds = _restore_bonds(all_bonds, before, plan)
            direct: Outputs = self.heads(
                batch, vectors, Features(plan.take_own(free), atoms, bonds), domain
            )
            return outputs | direct
        derivatives = self.convolutions.reverse(by_atoms, before, records, plan)
        gradient = geometry.reverse(*self._reverse(derivatives, geometry), plan, len(vectors))
        return outputs | {
            "forces": compute_forces(batch, gradient),
            "stress": compute_stress(batch, vectors, gradient),
        }

    def _interpolate(self, geometry: Geometry, plan: Plan) -> tuple[Inputs, Sequence[Tensor]]:
        """Return the inputs of the layers and, with heads, the first features of all bonds."""
        weights, *of_bonds = self.bonds(geometry.lengths)
        n_tables = len(self.convolutions.blocks) + 1
        tables, all_bonds = of_bonds[:n_tables], of_bonds[n_tables:]
        bond_weights, bonds = self.short(geometry.lengths[: len(plan.topology.short_bonds)])
        angles, *mapped = self.angles(geometry.angles)
        return Inputs(weights, tables, bond_weights, bonds, angles, mapped), all_bonds

    def _reverse(self, g: Inputs, geometry: Geometry) -> tuple[Tensor, Tensor]:
        """Return derivatives by lengths and angles from those by the inputs."""
        lengths = geometry.lengths
        by_lengths = self.bonds.reverse([g.atom_weights, *g.tables], lengths)
        short = lengths[: len(g.bonds)]
        by_lengths[: len(short)] += self.short.reverse([g.bond_weights, g.bonds], short)
        return by_lengths, self.angles.reverse([g.angles, *g.mapped], geometry.angles)


def _restore_bonds(all_bonds: Sequence[Tensor], last: State, plan: Plan) -> Tensor:
    """Return the features of all bonds in the order of the batch, (n_bonds, bond)."""
    (bonds,) = all_bonds
    return torch.empty_like(bonds).index_copy_(
        0, plan.order, torch.cat([last.bonds, bonds[len(last.bonds) :]])
    )


def _tabulate_bonds(network: Any) -> Splines:
    """Return weights of all bonds, tables of the atom convolutions and, for heads, features."""
    features = network.bond_embedding.weight.T
    maps = [layer.perceptron.split_maps().first[2].T for layer in network.atom_convolutions]
    groups = [network.atom_weights.weight.T, *(features @ one for one in maps)]
    if network.heads is not None:
        groups.append(features)
    return Splines(network.radial_basis, groups, network.graph.cutoff)


def _tabulate_short(network: Any) -> Splines:
    """Return weights and first features of short bonds, which have two bases."""
    weights, features = network.bond_weights.weight.T, network.bond_embedding.weight.T

    def expand(lengths: Tensor) -> Tensor:
        return torch.cat([network.short_radial_basis(lengths), network.radial_basis(lengths)], 1)

    pad = nn.functional.pad
    groups = [pad(weights, (0, 0, 0, len(features))), pad(features, (0, 0, len(weights), 0))]
    return Splines(expand, groups, network.graph.angle_cutoff)


def _tabulate_angles(network: Any) -> Splines:
    """Return first features of angles, and the outputs of the first block's first maps."""
    features = network.angle_embedding.weight.T
    layers = [*network.bond_convolutions[:1], *network.angle_updates[:1]]
    maps = [layer.perceptron.split_maps().first[-1].T for layer in layers]
    return Splines(network.angular_basis, [features, *(features @ one for one in maps)], math.pi)
