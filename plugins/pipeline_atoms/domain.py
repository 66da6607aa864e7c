"""Domain of a rank in a structure: the input of models that support domain decomposition.

A rank owns atoms, and all edges whose receiver it owns. Its local rows of atoms are its own atoms,
then the halo: ghost atoms, which are senders owned by other ranks.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch, collate
from pipeline_kernels.halo import HaloPlan, HaloRequest, Transport, collect, exchange, start

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DomainBonds:
    """Bonds and angles of the edges of a rank.

    A bond between atoms of two ranks is held by both, each for its own edge. An angle lies at the
    receiver of its edges, so that each rank lists the angles at its own atoms.

    Attributes:
        edge_bond: Bond of each own edge, (n_edges,).
        bond_edge: An own edge of each bond, (n_bonds,).
        angle_edges: Two own edges with one receiver, (n_angles, 2), sorted by the first.
        short: Bonds that may be part of an angle, here or at the other end, (n_short,) ascending.
        plan: Halo plan of short bonds: `exchange` appends the rows that other ranks have for
            shared bonds.
        twice: Row among short bonds that each appended row belongs to, (n_received,).
        transport: Transport of the messages.
    """

    edge_bond: Tensor
    bond_edge: Tensor
    angle_edges: Tensor
    short: Tensor
    plan: HaloPlan
    twice: Tensor
    transport: Transport

    def make_fields(self) -> Batch:
        """Return bonds and angles as fields of a batch of one sample."""
        fields = {name: getattr(self, name) for name in ("edge_bond", "bond_edge", "angle_edges")}
        for kind, name in (("bond", "bond_edge"), ("angle", "angle_edges")):
            count = len(fields[name])
            fields[f"{kind}_offsets"] = torch.tensor([0, count])
            fields[f"{kind}_sample"] = torch.zeros(count, dtype=torch.long)
        return fields

    def add_other_ends(self, sums: Tensor) -> Tensor:
        """Add the sums of the other ends to the sums over angles of this rank, (n_short, ...).

        Differentiable any number of times. All ranks call it together.
        """
        rows = exchange(sums, self.plan, self.transport)
        return rows[: len(sums)].index_add(0, self.twice, rows[len(sums) :])

    def to(self, device: torch.device | str) -> Self:
        """Return the same bonds on another device."""
        names = ("edge_bond", "bond_edge", "angle_edges", "short", "plan", "twice")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


@dataclass(frozen=True, eq=False)
class Domain:
    """The part of a structure that a rank owns, with its halo of ghost atoms.

    Attributes:
        structure: All atoms.
        atoms: Halo plan of the atoms: `exchange` appends the ghost atoms to own rows.
        edge_index: Local rows of receiver and sender of each own edge, (n_edges, 2), sorted by
            receiver, sender and shift in the structure.
        edge_shift: (n_edges, 3)
        edges: Halo plan of the edges: `exchange` appends the reverse of boundary edges, which
            other ranks own.
        reverse_edge: Row of the reverse of each edge among own edges, followed by those that
            `edges` appends, (n_edges,).
        transport: Transport of the messages.
        bonds: Bonds and angles of own edges, for models that have them; None without.
    """

    structure: Structure
    atoms: HaloPlan
    edge_index: Tensor
    edge_shift: Tensor
    edges: HaloPlan
    reverse_edge: Tensor
    transport: Transport
    bonds: DomainBonds | None = None

    @property
    def n_atoms(self) -> int:
        """Number of atoms of the whole structure."""
        return len(self.structure.positions)

    @property
    def n_own(self) -> int:
        """Number of own atoms."""
        return self.atoms.n_own

    @property
    def n_edges(self) -> int:
        """Number of own edges."""
        return len(self.edge_index)

    @cached_property
    def rows(self) -> Ints:
        """Index in the structure of each local row, own atoms ascending, (n_own + n_halo,)."""
        rows: Ints = torch.cat([self.atoms.own, self.atoms.halo]).cpu().numpy()
        return rows

    @cached_property
    def interior(self) -> Tensor:
        """Interior edges: the sender is an own atom, (n_interior,)."""
        return (self.edge_index[:, 1] < self.n_own).nonzero().flatten()

    @cached_property
    def boundary(self) -> Tensor:
        """Boundary edges: the sender is a ghost atom, (n_boundary,)."""
        return (self.edge_index[:, 1] >= self.n_own).nonzero().flatten()

    @cached_property
    def order(self) -> Tensor:
        """Position of each edge among interior edges followed by boundary edges, (n_edges,)."""
        return torch.cat([self.interior, self.boundary]).argsort()

    def make_inputs(self) -> dict[str, NDArray[Any]]:
        """Return atoms of all local rows, own edges and the cell as fields of a sample."""
        return {
            **self.structure.select(self.rows),
            "edge_index": self.edge_index.cpu().numpy(),
            "edge_shift": self.edge_shift.cpu().numpy(),
        }

    def make_batch(self, positions: NDArray[np.float64], dtype: torch.dtype) -> Batch:
        """Return the inputs of a potential.

        `atom_sample` has a row for each own atom, and none for the halo. With bonds, the batch has
        their fields too.

        Args:
            positions: Positions of all local rows, Å, (n_own + n_halo, 3).
            dtype: Type of floating-point tensors.
        """
        batch = collate([self.make_inputs() | {"positions": positions}], dtype)
        batch["atom_offsets"] = torch.tensor([0, self.n_own])
        batch["atom_sample"] = batch["atom_sample"][: self.n_own]
        if self.bonds is not None:
            batch |= self.bonds.make_fields()
        return batch

    def start(self, rows: Tensor) -> HaloRequest:
        """Start a halo exchange of rows of own atoms; `wait` on the result completes `exchange`.

        Work that needs own atoms alone can be done in between.
        """
        return start(rows, self.atoms, self.transport)

    def exchange(self, rows: Tensor) -> Tensor:
        """Append the rows of ghost atoms, from their owners, to rows of own atoms, (n_own, ...).

        Differentiable any number of times. All ranks call it together.

        Returns:
            (n_own + n_halo, ...)
        """
        return exchange(rows, self.atoms, self.transport)

    def collect(self, rows: Tensor) -> Tensor:
        """Add rows that other ranks hold for own atoms: the transpose of `exchange`.

        Args:
            rows: Rows of own atoms and the halo, (n_own + n_halo, ...).

        Returns:
            (n_own, ...)
        """
        return collect(rows, self.atoms, self.transport)

    def to(self, device: torch.device | str) -> Self:
        """Return the same domain on another device."""
        names = ("atoms", "edge_index", "edge_shift", "edges", "reverse_edge", "bonds")
        moved = {n: getattr(self, n).to(device) for n in names if getattr(self, n) is not None}
        return replace(self, **moved)


def take_own(rows: Tensor, domain: Domain | None) -> Tensor:
    """Return the rows of own atoms among local rows; without a domain, all rows."""
    return rows if domain is None else rows[: domain.n_own]
