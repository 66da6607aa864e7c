"""Implementations of the costly messages of a layer: fused, or written as the formulas read.

Fused, the first linear map of a perceptron, which acts on concatenated features, is a sum of maps
of the parts: a map runs over the rows of its part, the sum over messages. The map of the angles,
which are as many as messages, runs together with the sum.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, silu

from pipeline_chgnet.model.perceptron import GatedPerceptron, Maps
from pipeline_chgnet.model.topology import Topology
from pipeline_kernels.message import gather_sum
from pipeline_kernels.message.gated import Route, gated_messages

Sums = Callable[[GatedPerceptron, Tensor, Tensor, Tensor, Topology], Tensor]


@dataclass(frozen=True)
class Kernels:
    """Implementations of the same three functions.

    Attributes:
        sum_atom_messages: sum_j w_ij * phi(v_i, v_j, e_ij), (n_atoms, atom), from perceptron,
            features of atoms and of bonds, weights of bonds, topology.
        sum_bond_messages: sum_k w_ik * phi(v_i, e_ij, e_ik, a_ijk), (n_short, bond), from
            perceptron, features of atoms, short bonds and angles, weights of short bonds, topology.
        compute_angle_messages: phi(v_i, e_ij, e_ik, a_ijk), (n_angles, angle), from perceptron,
            features of atoms, short bonds and angles, topology.
    """

    sum_atom_messages: Sums
    sum_bond_messages: Callable[[GatedPerceptron, Tensor, Tensor, Tensor, Tensor, Topology], Tensor]
    compute_angle_messages: Sums


def sum_angle_messages(
    maps: Maps,
    tables: Sequence[Tensor],
    angles: Tensor,
    route: Route,
    factors: Tensor | None = None,
) -> Tensor:
    """Sum messages from the features of angles and the outputs of the other first maps."""
    return gated_messages(
        [*tables, angles], route, maps.gain, maps.shift, maps.hidden, factors, maps.projection
    )


def apply_first_maps(
    maps: Sequence[Tensor], bias: Tensor, atoms: Tensor, bonds: Tensor, topology: Topology
) -> list[Tensor]:
    """Apply maps of atom and bonds; atom and first bond share a table, since the arm has both."""
    atom, first, second = maps
    arms = gather_sum(
        [linear(atoms, atom, bias), linear(bonds, first)], [topology.arm_atoms, topology.arm_bonds]
    )
    return [arms, linear(bonds, second)]


def _sum_atom_messages(
    perceptron: GatedPerceptron, atoms: Tensor, bonds: Tensor, weights: Tensor, topology: Topology
) -> Tensor:
    maps = perceptron.split_maps()
    receiver, sender, bond = maps.first
    tables = [linear(atoms, receiver, maps.bias), linear(atoms, sender), linear(bonds, bond)]
    route = topology.atom_messages
    return gated_messages(tables, route, maps.gain, maps.shift, maps.hidden, weights)


def _sum_bond_messages(
    perceptron: GatedPerceptron,
    atoms: Tensor,
    bonds: Tensor,
    angles: Tensor,
    weights: Tensor,
    topology: Topology,
) -> Tensor:
    maps = perceptron.split_maps()
    tables = apply_first_maps(maps.first[:-1], maps.bias, atoms, bonds, topology)
    return sum_angle_messages(maps, tables, angles, topology.bond_messages, weights)


def _compute_angle_messages(
    perceptron: GatedPerceptron, atoms: Tensor, bonds: Tensor, angles: Tensor, topology: Topology
) -> Tensor:
    maps = perceptron.split_maps()
    tables = apply_first_maps(maps.first[:-1], maps.bias, atoms, bonds, topology)
    return sum_angle_messages(maps, tables, angles, topology.angle_messages)


def _sum_plain_atom_messages(
    perceptron: GatedPerceptron, atoms: Tensor, bonds: Tensor, weights: Tensor, topology: Topology
) -> Tensor:
    receiver, sender, bond = topology.edge_rows
    messages = _apply_plainly(perceptron, [atoms[receiver], atoms[sender], bonds[bond]])
    return torch.zeros_like(atoms).index_add(0, receiver, weights[bond] * messages)


def _sum_plain_bond_messages(
    perceptron: GatedPerceptron,
    atoms: Tensor,
    bonds: Tensor,
    angles: Tensor,
    weights: Tensor,
    topology: Topology,
) -> Tensor:
    _, first, second = topology.angle_rows
    messages = weights[second] * _compute_plain_angle_messages(
        perceptron, atoms, bonds, angles, topology
    )
    return torch.zeros_like(bonds).index_add(0, first, messages)


def _compute_plain_angle_messages(
    perceptron: GatedPerceptron, atoms: Tensor, bonds: Tensor, angles: Tensor, topology: Topology
) -> Tensor:
    atom, first, second = topology.angle_rows
    return _apply_plainly(perceptron, [atoms[atom], bonds[first], bonds[second], angles])


def _apply_plainly(perceptron: GatedPerceptron, parts: Sequence[Tensor]) -> Tensor:
    """Return phi of concatenated features, one operation after the other."""
    x = torch.cat([*parts], dim=1)
    core, gate = (_apply_half(perceptron, half, x) for half in range(2))
    return silu(core) * torch.sigmoid(gate)


def _apply_half(perceptron: GatedPerceptron, half: int, x: Tensor) -> Tensor:
    first = perceptron.first
    y = linear(x, first.weight.chunk(2)[half], first.bias.chunk(2)[half])
    if perceptron.second_weight is not None and perceptron.second_bias is not None:
        y = silu(y) @ perceptron.second_weight[half] + perceptron.second_bias[half]
    gain, shift = perceptron.gain[half, 0], perceptron.shift[half, 0]
    return layer_norm(y, gain.shape, gain, shift)


KERNELS: Final = {
    "fused": Kernels(_sum_atom_messages, _sum_bond_messages, _compute_angle_messages),
    "reference": Kernels(
        _sum_plain_atom_messages, _sum_plain_bond_messages, _compute_plain_angle_messages
    ),
}
