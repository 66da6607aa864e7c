"""Lengths of bonds and angles between them, and the reverse pass to the vectors of edges."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from pipeline_atoms.domain import Domain, take_own
from pipeline_chgnet.model.basis import SHRINKAGE, compute_angles
from pipeline_chgnet.model.topology import Topology
from pipeline_core.batch import Batch
from pipeline_kernels.message import Segments, segment_sum


@dataclass(frozen=True)
class Plan:
    """The topology of a batch, whose short bonds come first among its bonds.

    Attributes:
        topology: Topology of the batch.
        order: Bonds of the batch, (n_bonds,).
        edges: Edges of bonds, (n_bonds,).
        arms: Arms of angles: the first arms of all angles, then the second ones.
        domain: Domain of the atoms, edges and angles, if any.
    """

    topology: Topology
    order: Tensor
    edges: Tensor
    arms: Segments
    domain: Domain | None

    def take_own(self, rows: Tensor) -> Tensor:
        """Return the rows of own atoms among those of all atoms."""
        return take_own(rows, self.domain)

    def start(self, own: Tensor) -> Callable[[], Tensor]:
        """Start the halo exchange of rows of own atoms; the result waits for rows of all atoms."""
        return (lambda: own) if self.domain is None else self.domain.start(own).wait

    def collect(self, rows: Tensor) -> Tensor:
        """Sum derivatives by rows of own and ghost atoms over ranks (reverse halo exchange)."""
        return rows if self.domain is None else self.domain.collect(rows)

    def pad(self, own: Tensor) -> Tensor:
        """Return rows of all atoms: own rows, and zeros for ghost atoms."""
        if self.domain is None:
            return own
        return torch.cat([own, own.new_zeros(self.domain.atoms.n_halo, *own.shape[1:])])

    @classmethod
    def of(cls, batch: Batch, domain: Domain | None = None) -> Self:
        """Make the plan of a batch that has a bond graph, or of the inputs of a domain."""
        topology = Topology.of(batch, domain)
        n_bonds, short = len(batch["bond_edge"]), topology.short_bonds
        is_long = torch.ones(n_bonds, dtype=torch.bool, device=short.device)
        is_long[short] = False
        order = torch.cat([short, is_long.nonzero()[:, 0]])
        place = torch.empty_like(order).scatter_(0, order, torch.arange(n_bonds).to(order))
        receiver, sender, bond = topology.atom_messages.tables
        bond = Segments.of(place[batch["edge_bond"]], n_bonds)
        messages = replace(topology.atom_messages, tables=(receiver, sender, bond), factors=bond)
        arms = Segments.of(torch.cat(topology.angle_arms), len(topology.arms))
        topology = replace(topology, atom_messages=messages)
        return cls(topology, order, batch["bond_edge"][order], arms, domain)


class Geometry(NamedTuple):
    """Lengths and directions of bonds, and angles.

    Attributes:
        lengths: Lengths of bonds, (n_bonds,) Å.
        directions: Directions of bonds, along their edges, (n_bonds, 3).
        arm_lengths: (n_arms, 1) Å.
        arms: Directions of arms, (n_arms, 3).
        ends: Directions of the first and of the second arm of angles, (2, n_angles, 3).
        angles: Radian, (n_angles,).
    """

    lengths: Tensor
    directions: Tensor
    arm_lengths: Tensor
    arms: Tensor
    ends: Tensor
    angles: Tensor

    @classmethod
    def of(cls, vectors: Tensor, plan: Plan) -> Self:
        """Measure bonds and angles of the vectors of edges, (n_edges, 3) Å."""
        bonds, arms = vectors[plan.edges], vectors[plan.topology.arms]
        lengths, arm_lengths = (
            torch.linalg.vector_norm(x, dim=1, keepdim=True) for x in (bonds, arms)
        )
        arms = arms / arm_lengths
        ends = arms.index_select(0, plan.arms.index).unflatten(0, (2, -1))
        angles = compute_angles(ends[0], ends[1])
        return cls(lengths[:, 0], bonds / lengths, arm_lengths, arms, ends, angles)

    def reverse(self, by_lengths: Tensor, by_angles: Tensor, plan: Plan, n_edges: int) -> Tensor:
        """Take derivatives by lengths and angles back to the vectors, (n_edges, 3)."""
        by_cosine = -SHRINKAGE * by_angles / torch.sin(self.angles)
        by_ends = (self.ends.flip(0) * by_cosine[:, None]).flatten(0, 1)
        by_arms = segment_sum(by_ends, plan.arms)
        across = by_arms - (by_arms * self.arms).sum(1, keepdim=True) * self.arms
        result = by_lengths.new_zeros(n_edges, 3)
        result[plan.edges] = by_lengths[:, None] * self.directions
        result[plan.topology.arms] += across / self.arm_lengths
        return result
