"""Topology of messages in a batch: plans of gathers and sums, made once for all layers."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from ase.data import chemical_symbols
from torch import Tensor

from pipeline_atoms.domain import Domain, DomainBonds
from pipeline_chgnet.options import N_ELEMENTS
from pipeline_core.batch import Batch
from pipeline_kernels.message import Segments
from pipeline_kernels.message.gated import Route


@dataclass(frozen=True)
class Topology:
    """The atom graph and the bond graph of a batch.

    An *arm* is a directed edge that takes part in an angle, a *short bond* a bond that has arms.

    Attributes:
        atom_messages: A message an edge, added to its receiver; tables: receiver, sender, bond.
        bond_messages: A message an angle, added to the bond of its first arm; tables: first arm,
            second short bond, angle.
        angle_messages: The same messages without summation.
        arms: (n_arms,) edges.
        short_bonds: (n_short,) bonds.
        arm_atoms: Receiver of each arm, among own atoms of a domain.
        arm_bonds: Short bond of each arm.
        angle_arms: The two arms of each angle, (n_angles,) each.
        bonds: Exchange of short bonds with arms on other ranks, in a domain; None for samples.
    """

    atom_messages: Route
    bond_messages: Route
    angle_messages: Route
    arms: Tensor
    short_bonds: Tensor
    arm_atoms: Segments
    arm_bonds: Segments
    angle_arms: tuple[Tensor, Tensor]
    bonds: DomainBonds | None = None

    FIELDS: ClassVar = (
        "atomic_numbers",
        "atom_sample",
        "edge_index",
        "edge_bond",
        "bond_edge",
        "angle_edges",
    )
    """Fields of a batch from which the plans are made."""

    @property
    def edge_rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Receiver, sender and bond of each edge, (n_edges,) each."""
        receiver, sender, bond = self.atom_messages.tables
        assert receiver is not None
        assert sender is not None
        assert bond is not None
        return receiver.index, sender.index, bond.index

    @property
    def angle_rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Atom, first and second short bond of each angle, (n_angles,) each."""
        first, second = self.angle_arms
        bond = self.arm_bonds.index
        return self.arm_atoms.index[first], bond[first], bond[second]

    def complete(self, sums: Tensor) -> Tensor:
        """Add the sums of other ranks to sums over the angles of short bonds, (n_short, ...)."""
        return sums if self.bonds is None else self.bonds.add_other_ends(sums)

    @classmethod
    def of(cls, batch: Batch, domain: Domain | None = None) -> Self:
        """Make the plans of a batch that has a bond graph.

        Args:
            batch: Samples, or the inputs of a domain.
            domain: The domain.
        """
        n_atoms = len(batch["atomic_numbers"])
        n_edges, n_bonds = len(batch["edge_bond"]), len(batch["bond_edge"])
        receiver, sender = (Segments.of(i, n_atoms) for i in batch["edge_index"].unbind(1))
        bond = Segments.of(batch["edge_bond"], n_bonds)
        arms, angle_arms = _renumber(batch["angle_edges"], n_edges)
        bonds, bond_of_arm = None if domain is None else domain.bonds, batch["edge_bond"][arms]
        short_bonds, arm_bond = _renumber(bond_of_arm, n_bonds, bonds.short if bonds else None)
        n_short, n_angles = len(short_bonds), len(angle_arms)
        first, second = angle_arms.unbind(1)
        second_bond = Segments.of(arm_bond[second], n_short)
        tables = (Segments.of(first, len(arms)), second_bond, None)
        target = Segments.of(arm_bond[first], n_short)
        return cls(
            atom_messages=Route((receiver, sender, bond), bond, receiver, n_edges),
            bond_messages=Route(tables, second_bond, target, n_angles),
            angle_messages=Route(tables, None, None, n_angles),
            arms=arms,
            short_bonds=short_bonds,
            arm_atoms=Segments.of(receiver.index[arms], len(batch["atom_sample"])),
            arm_bonds=Segments.of(arm_bond, n_short),
            angle_arms=(first.contiguous(), second.contiguous()),
            bonds=bonds,
        )


def check_batch(batch: Batch) -> None:
    """Check that CHGNet supports a batch.

    Raises:
        ValueError: An element is beyond plutonium, or the batch has no bond graph.
    """
    if "angle_edges" not in batch:
        raise ValueError("the graph has no angles; set graph.angle_cutoff and build it again")
    largest = int(batch["atomic_numbers"].max())
    if largest > N_ELEMENTS:
        raise ValueError(
            f"CHGNet supports the elements from H to {chemical_symbols[N_ELEMENTS]}, not "
            f"{chemical_symbols[largest]} (Z = {largest}); remove the structures that hold it"
        )


def _renumber(index: Tensor, n: int, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return numbers below `n`, ascending, and `index` as positions among them.

    The numbers are those that occur, or `kept`, which must include all that occur.
    """
    occurs = torch.zeros(n, dtype=torch.bool, device=index.device)
    occurs[index.flatten() if kept is None else kept] = True
    position = occurs.cumsum(0) - 1
    return occurs.nonzero().squeeze(1), position[index]
