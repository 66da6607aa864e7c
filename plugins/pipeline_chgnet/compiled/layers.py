"""Layers of a compiled CHGNet, forward and reverse."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pipeline_chgnet.model.layers import AngleUpdate, AtomConvolution, BondConvolution
from pipeline_chgnet.model.perceptron import Maps
from pipeline_chgnet.model.topology import Topology
from pipeline_kernels.message import gather_sum, segment_sum
from pipeline_kernels.message.gated import (
    Inputs,
    Route,
    compute_messages,
    differentiate_messages,
)


class Record(NamedTuple):
    """Results of a layer for its reverse pass.

    Attributes:
        inputs: Inputs of the messages.
        kept: Intermediate results that the kernel keeps.
        sums: Sums of the messages.
    """

    inputs: Inputs
    kept: Tensor | None
    sums: Tensor


class Messages(nn.Module):
    """Gated messages from the outputs of first maps.

    Args:
        maps: Maps of the perceptron.
        projected: Whether the last table has features of angles before their first map.
    """

    gain: Tensor
    shift: Tensor
    weight: Tensor | None
    bias: Tensor | None
    projection: Tensor | None

    def __init__(self, maps: Maps, projected: bool) -> None:
        super().__init__()
        weight, bias = maps.hidden or (None, None)
        self.register_buffer("gain", maps.gain.detach())
        self.register_buffer("shift", maps.shift.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("projection", maps.projection if projected else None)

    def forward(self, tables: Sequence[Tensor], route: Route, factors: Tensor | None) -> Record:
        """Sum the messages."""
        parameters = self.gain, self.shift, self.weight, self.bias
        inputs = Inputs(tables, factors, self.projection, *parameters)
        sums, kept = compute_messages(inputs, route)
        return Record(inputs, kept, sums)

    def reverse(self, g: Tensor, record: Record, route: Route) -> list[Tensor]:
        """Return derivatives by tables and factors."""
        return differentiate_messages(g, record.inputs, route, record.kept)


class CompiledAtomConvolution(nn.Module):
    """An `AtomConvolution`; its table of bonds starts from the first features."""

    ends: Tensor
    bias: Tensor
    bond: Tensor
    output: Tensor

    def __init__(self, layer: AtomConvolution) -> None:
        super().__init__()
        maps = layer.perceptron.split_maps()
        receiver, sender, bond = maps.first
        self.messages = Messages(maps, projected=False)
        self.register_buffer("ends", torch.stack([receiver.T, sender.T]))  # (2, atom, 2 width)
        self.register_buffer("bias", torch.stack([maps.bias, 0 * maps.bias])[:, None])
        self.register_buffer("bond", bond.T.contiguous())  # (bond, 2 width)
        self.register_buffer("output", layer.output.weight.T.contiguous())

    def forward(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        table: Tensor,  # (n_bonds, 2 width), written to
        changes: Tensor | None,  # (n_short, bond)
        weights: Tensor,  # (n_bonds, atom)
        topology: Topology,
    ) -> tuple[Tensor, Record]:
        """Update the features of atoms. Short bonds, which come first, have changed."""
        receivers, senders = torch.baddbmm(self.bias, atoms.expand(2, -1, -1), self.ends)
        if changes is not None:
            table[: len(changes)].addmm_(changes, self.bond)
        record = self.messages([receivers, senders, table], topology.atom_messages, weights)
        return torch.addmm(atoms, record.sums, self.output), record

    def reverse(
        self, g: Tensor, record: Record, topology: Topology
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return derivatives by atoms, by the table, and by weights."""
        by_receivers, by_senders, by_table, by_weights = self.messages.reverse(
            g @ self.output.T, record, topology.atom_messages
        )
        by_atoms = torch.addmm(g, by_receivers, self.ends[0].T)
        return by_atoms.addmm_(by_senders, self.ends[1].T), by_table, by_weights


class ArmMaps(nn.Module):
    """First maps of the features of an angle's atom and its two bonds."""

    atom: Tensor
    bias: Tensor
    bonds: Tensor

    def __init__(self, maps: Maps) -> None:
        super().__init__()
        atom, first, second = maps.first[:3]
        self.register_buffer("atom", atom.T.contiguous())
        self.register_buffer("bias", maps.bias)
        self.register_buffer("bonds", torch.stack([first.T, second.T]))

    def forward(self, atoms: Tensor, bonds: Tensor, topology: Topology) -> list[Tensor]:
        """Return the tables of arms and of second bonds."""
        first, second = torch.bmm(bonds.expand(2, -1, -1), self.bonds)
        of_atoms = torch.addmm(self.bias, atoms, self.atom)
        arms = gather_sum([of_atoms, first], [topology.arm_atoms, topology.arm_bonds])
        return [arms, second]

    def reverse(
        self, by_arms: Tensor, by_second: Tensor, topology: Topology
    ) -> tuple[Tensor, Tensor]:
        """Return derivatives by atoms and by bonds."""
        by_atoms = segment_sum(by_arms, topology.arm_atoms)
        by_first = segment_sum(by_arms, topology.arm_bonds)
        by_bonds = torch.addmm(by_first @ self.bonds[0].T, by_second, self.bonds[1].T)
        return by_atoms @ self.atom.T, by_bonds


class CompiledBondConvolution(nn.Module):
    """A `BondConvolution`.

    Args:
        layer: Layer in double precision.
        tabulated: Whether angles are given as outputs of their first map.
    """

    output: Tensor

    def __init__(self, layer: BondConvolution, tabulated: bool) -> None:
        super().__init__()
        maps = layer.perceptron.split_maps()
        self.arms, self.messages = ArmMaps(maps), Messages(maps, not tabulated)
        self.register_buffer("output", layer.output.weight.T.contiguous())

    def forward(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        bonds: Tensor,  # (n_short, bond)
        angles: Tensor,  # (n_angles, angle), or (n_angles, 2 width)
        weights: Tensor,  # (n_short, bond)
        topology: Topology,
    ) -> tuple[Tensor, Record]:
        """Update the features of short bonds."""
        tables = [*self.arms(atoms, bonds, topology), angles]
        record = self.messages(tables, topology.bond_messages, weights)
        record = record._replace(sums=topology.complete(record.sums))
        return torch.addmm(bonds, weights * record.sums, self.output), record

    def reverse(
        self, g: Tensor, record: Record, topology: Topology
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return derivatives by atoms, by bonds, by angles and by weights."""
        weights = record.inputs.factors
        assert weights is not None
        by_update = g @ self.output.T
        by_sums = topology.complete(by_update * weights)  # each rank with the bond adds to its sum
        by_arms, by_second, by_angles, by_weights = self.messages.reverse(
            by_sums, record, topology.bond_messages
        )
        by_weights = by_weights.addcmul_(by_update, record.sums)
        by_atoms, by_bonds = self.arms.reverse(by_arms, by_second, topology)
        return by_atoms, by_bonds.add_(g), by_angles, by_weights


class CompiledAngleUpdate(nn.Module):
    """An `AngleUpdate`.

    Args:
        layer: Layer in double precision.
        tabulated: Whether angles are also given as outputs of their first map.
    """

    def __init__(self, layer: AngleUpdate, tabulated: bool) -> None:
        super().__init__()
        maps = layer.perceptron.split_maps()
        self.arms, self.messages = ArmMaps(maps), Messages(maps, not tabulated)

    def forward(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        bonds: Tensor,  # (n_short, bond)
        angles: Tensor,  # (n_angles, angle)
        last: Tensor,  # the same, or (n_angles, 2 angle)
        topology: Topology,
    ) -> tuple[Tensor, Record]:
        """Update the features of angles."""
        tables = [*self.arms(atoms, bonds, topology), last]
        record = self.messages(tables, topology.angle_messages, None)
        return angles + record.sums, record

    def reverse(
        self, g: Tensor, record: Record, topology: Topology
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return derivatives by atoms, by bonds, and by the last table."""
        by_arms, by_second, by_angles = self.messages.reverse(g, record, topology.angle_messages)
        return *self.arms.reverse(by_arms, by_second, topology), by_angles
