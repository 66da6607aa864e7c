"""Convolutions of a compiled CHGNet in sequence, forward and reverse."""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from pipeline_chgnet.compiled.geometry import Plan
from pipeline_chgnet.compiled.layers import (
    CompiledAngleUpdate,
    CompiledAtomConvolution,
    CompiledBondConvolution,
    Record,
)


class Inputs(NamedTuple):
    """Inputs of the layers from splines, or derivatives by these inputs.

    Attributes:
        atom_weights: (n_bonds, atom).
        tables: Tables of the atom convolutions, (n_bonds, 2 width) each.
        bond_weights: (n_short, bond).
        bonds: First features of short bonds, (n_short, bond).
        angles: First features of angles, (n_angles, angle).
        mapped: First features of angles after the first map of the first bond convolution and of
            the first angle update, (n_angles, 2 width) each, where these layers exist.
    """

    atom_weights: Tensor
    tables: list[Tensor]
    bond_weights: Tensor
    bonds: Tensor
    angles: Tensor
    mapped: list[Tensor]


class State(NamedTuple):
    """Features, or derivatives by them.

    Attributes:
        atoms: (n_all, atom); in a domain, ghost atoms follow own ones.
        bonds: Features of short bonds, (n_short, bond).
        angles: (n_angles, angle).
    """

    atoms: Tensor
    bonds: Tensor
    angles: Tensor


class Gradients:
    """Derivatives by the inputs, collected layer by layer, the last layer first.

    Args:
        last: The features of bonds and angles before the last convolution.
    """

    def __init__(self, last: State) -> None:
        self.bonds = torch.zeros_like(last.bonds)
        self.bond_weights = torch.zeros_like(last.bonds)
        self.atom_weights: Tensor | None = None
        self.tables: list[Tensor] = []
        self.mapped: list[Tensor] = []

    def add_table(self, by_table: Tensor, by_weights: Tensor) -> None:
        """Add the derivatives of an atom convolution."""
        self.tables.append(by_table)
        before = self.atom_weights
        self.atom_weights = by_weights if before is None else before.add_(by_weights)

    def finish(self, first: State) -> Inputs:
        """Return all derivatives, with those by the first features."""
        assert self.atom_weights is not None
        return Inputs(
            self.atom_weights,
            self.tables[::-1],
            self.bond_weights,
            self.bonds.add_(first.bonds),
            first.angles,
            self.mapped[::-1],
        )


class AtomStep(nn.Module):
    """An atom convolution.

    Args:
        layer: Layer of the trained network.
        number: Number of the convolution, from 0.
    """

    def __init__(self, layer: Any, number: int) -> None:
        super().__init__()
        self.number, self.convolve = number, CompiledAtomConvolution(layer)

    def forward(self, old: State, inputs: Inputs, plan: Plan) -> tuple[Tensor, Record]:
        """Return the new features of own atoms."""
        changes = old.bonds - inputs.bonds if self.number else None
        table = inputs.tables[self.number]
        atoms, record = self.convolve(old.atoms, table, changes, inputs.atom_weights, plan.topology)
        return plan.take_own(atoms), record

    def reverse(
        self, g: Tensor, by_bonds: Tensor, record: Record, gradients: Gradients, plan: Plan
    ) -> Tensor:
        """Return derivatives by old features of all atoms, given those by new features of own ones.

        Derivatives by the old bonds are added to `by_bonds`.
        """
        by_atoms, by_table, by_weights = self.convolve.reverse(plan.pad(g), record, plan.topology)
        gradients.add_table(by_table, by_weights)
        if self.number:
            by_changes = by_table[: len(by_bonds)] @ self.convolve.bond.T
            by_bonds += by_changes
            gradients.bonds -= by_changes
        return by_atoms


class Block(nn.Module):
    """An atom convolution, a bond convolution and, except in the last block, an angle update.

    Args:
        layers: Layers of the trained network.
        number: Number of the block, from 0.
        is_parallel: Whether all layers read the features before the block.
    """

    def __init__(self, layers: tuple[Any, Any, Any | None], number: int, is_parallel: bool) -> None:
        super().__init__()
        of_atoms, of_bonds, of_angles = layers
        self.is_first, self.is_parallel = number == 0, is_parallel
        self.atoms = AtomStep(of_atoms, number)
        self.bonds = CompiledBondConvolution(of_bonds, self.is_first)
        self.angles = None if of_angles is None else CompiledAngleUpdate(of_angles, self.is_first)

    def forward(self, old: State, inputs: Inputs, plan: Plan) -> tuple[State, list[Record]]:
        """Return the features after the block, and the records of its layers."""
        atoms, record = self.atoms(old, inputs, plan)
        wait, topology = plan.start(atoms), plan.topology
        seen, records = plan.take_own(old.atoms) if self.is_parallel else atoms, [record]
        mapped = inputs.mapped if self.is_first else [old.angles] * 2
        bonds, record = self.bonds(seen, old.bonds, mapped[0], inputs.bond_weights, topology)
        records.append(record)
        if self.angles is None:
            return State(wait(), bonds, old.angles), records
        sides = old.bonds if self.is_parallel else bonds
        angles, record = self.angles(seen, sides, old.angles, mapped[1], topology)
        return State(wait(), bonds, angles), [*records, record]

    def reverse(self, g: State, records: list[Record], gradients: Gradients, plan: Plan) -> State:
        """Return derivatives by the features before the block."""
        by_atoms, by_bonds, by_angles = plan.collect(g.atoms), g.bonds, g.angles
        (of_atoms, of_bonds), topology = records[:2], plan.topology
        seen, sides = [], []  # derivatives by the inputs of later layers
        if self.angles is not None:
            by_seen, by_sides, by_last = self.angles.reverse(by_angles, records[2], topology)
            by_angles = self._add_angles(by_angles, by_last, gradients)
            seen, sides = [by_seen], [by_sides]
        if not self.is_parallel:
            by_bonds = sum(sides, by_bonds)
        by_seen, by_old, by_last, by_weights = self.bonds.reverse(by_bonds, of_bonds, topology)
        by_angles = self._add_angles(by_angles, by_last, gradients)
        gradients.bond_weights += by_weights
        seen.append(by_seen)
        if self.is_parallel:
            by_old = sum(sides, by_old)
            by_atoms = self.atoms.reverse(by_atoms, by_old, of_atoms, gradients, plan)
            by_atoms[: len(by_seen)] += sum(seen)  # of own atoms, which come first
            return State(by_atoms, by_old, by_angles)
        by_atoms = sum(seen, by_atoms)
        by_atoms = self.atoms.reverse(by_atoms, by_old, of_atoms, gradients, plan)
        return State(by_atoms, by_old, by_angles)

    def _add_angles(self, by_angles: Tensor, by_table: Tensor, gradients: Gradients) -> Tensor:
        """Add the derivative by the last table of messages to the features behind the table."""
        if self.is_first:
            gradients.mapped.append(by_table)
            return by_angles
        return by_angles + by_table


class Convolutions(nn.Module):
    """All convolutions of a trained network.

    Args:
        network: A `CHGNet` in double precision.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        *first, last = network.atom_convolutions
        parallel = network.options.updates == "parallel"
        updates = [*network.angle_updates, None]
        self.blocks = nn.ModuleList(
            Block(layers, t, parallel)
            for t, layers in enumerate(zip(first, network.bond_convolutions, updates, strict=False))
        )
        self.last = AtomStep(last, len(first))

    def forward(
        self, atoms: Tensor, inputs: Inputs, plan: Plan
    ) -> tuple[Tensor, State, list[list[Record]]]:
        """Return the last features of own atoms, all before the last convolution, and records."""
        state, records = State(atoms, inputs.bonds, inputs.angles), []
        for block in self.blocks:
            state, of_block = block(state, inputs, plan)
            records.append(of_block)
        atoms, record = self.last(state, inputs, plan)
        return atoms, state, [*records, [record]]

    def reverse(self, g: Tensor, last: State, records: list[list[Record]], plan: Plan) -> Inputs:
        """Return derivatives by the inputs from those by the last features of own atoms.

        Args:
            g: (n_own, atom).
            last: Features before the last convolution.
            records: Records of all layers; the list is emptied to free memory.
            plan: Plan of the batch.
        """
        gradients = Gradients(last)
        by_bonds, by_angles = torch.zeros_like(last.bonds), torch.zeros_like(last.angles)
        (record,) = records.pop()
        by_atoms = self.last.reverse(g, by_bonds, record, gradients, plan)
        state = State(by_atoms, by_bonds, by_angles)
        for block in reversed(cast("list[Block]", [*self.blocks])):
            state = block.reverse(state, records.pop(), gradients, plan)
        return gradients.finish(state)
