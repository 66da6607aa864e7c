"""The layers of CHGNet: gated perceptron, atom convolution, bond convolution, angle update.

Equations (4), (5) and (6) of Zhou et al., arXiv:2412.20796, for the network of Deng et al., Nat.
Mach. Intell. 5, 1031 (2023). The first linear map of a perceptron acts on concatenated features, so
it is a sum of maps of the parts: a map runs over the rows of its part, the sum over messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from pipeline_chgnet.topology import Topology
from pipeline_kernels.message import gather_sum
from pipeline_kernels.message.gated import Route, gated_messages


class GatedPerceptron(nn.Module):
    """Two perceptrons over the same inputs: silu(norm(core)) times sigmoid(norm(gate)).

    Args:
        inputs: Widths of the parts of the input.
        outputs: Width of the output.
        hidden: Width of the hidden layer, or None for none.
    """

    def __init__(self, inputs: Sequence[int], outputs: int, hidden: int | None = None) -> None:
        super().__init__()
        self.inputs = tuple(inputs)
        self.first = nn.Linear(sum(inputs), 2 * (hidden or outputs))
        self.second_weight: nn.Parameter | None = None
        self.second_bias: nn.Parameter | None = None
        if hidden is not None:
            bound = 1 / math.sqrt(hidden)  # as nn.Linear
            self.second_weight = nn.Parameter(
                torch.empty(2, hidden, outputs).uniform_(-bound, bound)
            )
            self.second_bias = nn.Parameter(torch.empty(2, 1, outputs).uniform_(-bound, bound))
        self.gain = nn.Parameter(torch.ones(2, 1, outputs))
        self.shift = nn.Parameter(torch.zeros(2, 1, outputs))

    def split_first_map(self) -> tuple[list[Tensor], Tensor]:
        """Return the weights that act on each part, (2 width, n_part), and the bias (2 width,)."""
        weight: Tensor = self.first.weight
        bias: Tensor = self.first.bias
        if self.second_weight is None:  # the norm follows at once
            weight = _center(weight.unflatten(0, (2, -1)), 1).flatten(0, 1)
            bias = _center(bias.unflatten(0, (2, -1)), 1).flatten()
        return list(weight.split(self.inputs, dim=1)), bias

    def forward(
        self, tables: Sequence[Tensor], route: Route, factors: Tensor | None = None
    ) -> Tensor:
        """Compute messages from the outputs of the first maps; see `gated_messages`."""
        hidden = None
        if self.second_weight is not None and self.second_bias is not None:
            hidden = _center(self.second_weight, 2), _center(self.second_bias, 2)
        return gated_messages(tables, route, self.gain, self.shift, hidden, factors)


def _center(weight: Tensor, dim: int) -> Tensor:
    """Take the mean of the layer normalisation out of what is normalised, beforehand."""
    return weight - weight.mean(dim, keepdim=True)


class AtomConvolution(nn.Module):
    """v_i + L[ sum_j w_ij * phi(v_i, v_j, e_ij) ], equation (4); L has no bias.

    Args:
        atom: Width of atom features v.
        bond: Width of bond features e.
        hidden: Width of the hidden layer of phi.
    """

    def __init__(self, atom: int, bond: int, hidden: int) -> None:
        super().__init__()
        self.perceptron = GatedPerceptron((atom, atom, bond), atom, hidden)
        self.output = nn.Linear(atom, atom, bias=False)

    def forward(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        bonds: Tensor,  # (n_bonds, bond)
        weights: Tensor,  # (n_bonds, atom)
        topology: Topology,
    ) -> Tensor:  # (n_atoms, atom)
        """Update the features of atoms."""
        (receiver, sender, bond), bias = self.perceptron.split_first_map()
        tables = [linear(atoms, receiver, bias), linear(atoms, sender), linear(bonds, bond)]
        sums = self.perceptron(tables, topology.atom_messages, weights)
        updated: Tensor = atoms + self.output(sums)
        return updated


class BondConvolution(nn.Module):
    """e_ij + L[ sum_k w_ij * w_ik * phi(v_i, e_ij, e_ik, a_ijk) ], equation (5); L has no bias.

    Args:
        atom: Width of atom features v.
        bond: Width of bond features e.
        angle: Width of angle features a.
        hidden: Width of the hidden layer of phi.
    """

    def __init__(self, atom: int, bond: int, angle: int, hidden: int) -> None:
        super().__init__()
        self.perceptron = GatedPerceptron((atom, bond, bond, angle), bond, hidden)
        self.output = nn.Linear(bond, bond, bias=False)

    def forward(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        bonds: Tensor,  # (n_short, bond)
        angles: Tensor,  # (n_angles, angle)
        weights: Tensor,  # (n_short, bond)
        topology: Topology,
    ) -> Tensor:  # (n_short, bond)
        """Update the features of short bonds."""
        tables = _make_angle_tables(self.perceptron, atoms, bonds, angles, topology)
        sums = self.perceptron(tables, topology.bond_messages, weights)
        updated: Tensor = bonds + self.output(weights * sums)  # w_ij is the same for all k
        return updated


class AngleUpdate(nn.Module):
    """a_ijk + phi(v_i, e_ij, e_ik, a_ijk), equation (6), without a hidden layer.

    Args:
        atom: Width of atom features v.
        bond: Width of bond features e.
        angle: Width of angle features a.
    """

    def __init__(self, atom: int, bond: int, angle: int) -> None:
        super().__init__()
        self.perceptron = GatedPerceptron((atom, bond, bond, angle), angle)

    def forward(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        bonds: Tensor,  # (n_short, bond)
        angles: Tensor,  # (n_angles, angle)
        topology: Topology,
    ) -> Tensor:  # (n_angles, angle)
        """Update the features of angles."""
        tables = _make_angle_tables(self.perceptron, atoms, bonds, angles, topology)
        updated: Tensor = angles + self.perceptron(tables, topology.angle_messages)
        return updated


def update_bonds_and_angles(
    convolution: BondConvolution,
    update: AngleUpdate,
    atoms: Tensor,  # (n_atoms, atom)
    bonds: Tensor,  # (n_short, bond)
    angles: Tensor,  # (n_angles, angle)
    weights: Tensor,  # (n_short, bond)
    topology: Topology,
) -> tuple[Tensor, Tensor]:  # (n_short, bond), (n_angles, angle)
    """Do a bond convolution and an angle update that see the same features, equation (11).

    The first maps of both perceptrons are one, whose outputs lie side by side.
    """
    maps, biases = zip(
        *(layer.perceptron.split_first_map() for layer in (convolution, update)), strict=True
    )
    packed = [torch.cat(parts) for parts in zip(*maps, strict=True)]
    tables = _apply_first_maps(packed, torch.cat(biases), atoms, bonds, angles, topology)
    split = [table.split([len(bias) for bias in biases], dim=1) for table in tables]
    of_bonds, of_angles = zip(*split, strict=True)
    sums = convolution.perceptron(of_bonds, topology.bond_messages, weights)
    return (
        bonds + convolution.output(weights * sums),
        angles + update.perceptron(of_angles, topology.angle_messages),
    )


def build_perceptron(
    inputs: int, hidden: Sequence[int], outputs: int, bias: bool = True
) -> nn.Sequential:
    """Return linear maps with SiLU between them.

    Args:
        inputs: Width of the input.
        hidden: Widths of the hidden layers.
        outputs: Width of the output.
        bias: Whether the maps have biases; without them zero is mapped to zero.
    """
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width, bias=bias), nn.SiLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs, bias=bias))


def _make_angle_tables(
    perceptron: GatedPerceptron, atoms: Tensor, bonds: Tensor, angles: Tensor, topology: Topology
) -> list[Tensor]:
    """Apply the first maps of one perceptron."""
    return _apply_first_maps(*perceptron.split_first_map(), atoms, bonds, angles, topology)


def _apply_first_maps(
    maps: Sequence[Tensor],
    bias: Tensor,
    atoms: Tensor,
    bonds: Tensor,
    angles: Tensor,
    topology: Topology,
) -> list[Tensor]:
    """Apply maps of the parts; the first arm knows atom and first bond, which share a table."""
    atom, first, second, angle = maps
    arms = gather_sum(
        [linear(atoms, atom, bias), linear(bonds, first)], [topology.arm_atoms, topology.arm_bonds]
    )
    return [arms, linear(bonds, second), linear(angles, angle)]
