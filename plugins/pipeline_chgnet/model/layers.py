"""Layers of CHGNet: atom convolution, bond convolution, angle update.

Equations (4), (5) and (6) of Zhou et al., arXiv:2412.20796, for the network of Deng et al., Nat.
Mach. Intell. 5, 1031 (2023).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pipeline_chgnet.model.kernels import Kernels, apply_first_maps, sum_angle_messages
from pipeline_chgnet.model.perceptron import GatedPerceptron
from pipeline_chgnet.model.topology import Topology


class AtomConvolution(nn.Module):
    """v_i + L[ sum_j w_ij * phi(v_i, v_j, e_ij) ], equation (4); L has no bias.

    Args:
        atom: Width of atom features v.
        bond: Width of bond features e.
        hidden: Width of the hidden layer of phi.
        kernels: Implementation of the messages.
    """

    def __init__(self, atom: int, bond: int, hidden: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
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
        sums = self.kernels.sum_atom_messages(self.perceptron, atoms, bonds, weights, topology)
        updated: Tensor = atoms + self.output(sums)
        return updated


class BondConvolution(nn.Module):
    """e_ij + L[ sum_k w_ij * w_ik * phi(v_i, e_ij, e_ik, a_ijk) ], equation (5); L has no bias.

    Args:
        atom: Width of atom features v.
        bond: Width of bond features e.
        angle: Width of angle features a.
        hidden: Width of the hidden layer of phi.
        kernels: Implementation of the messages.
    """

    def __init__(self, atom: int, bond: int, angle: int, hidden: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
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
        sums = topology.complete(
            self.kernels.sum_bond_messages(self.perceptron, atoms, bonds, angles, weights, topology)
        )
        updated: Tensor = bonds + self.output(weights * sums)  # w_ij is the same for all k
        return updated


class AngleUpdate(nn.Module):
    """a_ijk + phi(v_i, e_ij, e_ik, a_ijk), equation (6), without a hidden layer.

    Args:
        atom: Width of atom features v.
        bond: Width of bond features e.
        angle: Width of angle features a.
        kernels: Implementation of the messages.
    """

    def __init__(self, atom: int, bond: int, angle: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.perceptron = GatedPerceptron((atom, bond, bond, angle), angle)

    def forward(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        bonds: Tensor,  # (n_short, bond)
        angles: Tensor,  # (n_angles, angle)
        topology: Topology,
    ) -> Tensor:  # (n_angles, angle)
        """Update the features of angles."""
        return angles + self.kernels.compute_angle_messages(
            self.perceptron, atoms, bonds, angles, topology
        )


def update_bonds_and_angles(
    convolution: BondConvolution,
    update: AngleUpdate,
    atoms: Tensor,  # (n_atoms, atom)
    bonds: Tensor,  # (n_short, bond)
    angles: Tensor,  # (n_angles, angle)
    weights: Tensor,  # (n_short, bond)
    topology: Topology,
) -> tuple[Tensor, Tensor]:  # (n_short, bond), (n_angles, angle)
    """Do a bond convolution and an angle update on the same input features, equation (11).

    The first maps of atoms and bonds in both perceptrons are joined, with concatenated outputs.
    """
    maps = convolution.perceptron.split_maps(), update.perceptron.split_maps()
    packed = [torch.cat(parts) for parts in zip(*(each.first[:-1] for each in maps), strict=True)]
    bias = torch.cat([each.bias for each in maps])
    tables = apply_first_maps(packed, bias, atoms, bonds, topology)
    split = [table.split([len(each.bias) for each in maps], dim=1) for table in tables]
    of_bonds, of_angles = zip(*split, strict=True)
    sums = topology.complete(
        sum_angle_messages(maps[0], of_bonds, angles, topology.bond_messages, weights)
    )
    return (
        bonds + convolution.output(weights * sums),
        angles + sum_angle_messages(maps[1], of_angles, angles, topology.angle_messages),
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
