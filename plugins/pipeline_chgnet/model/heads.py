"""Direct force and stress heads: outputs from features, in place of derivatives of the energy.

Zhou et al., FastCHGNet, arXiv:2412.20796, equations (7) to (9). With x_ij the unit vector from
atom i to its neighbour j, r_ij the vector itself, and a scalar n_ij of the bond, the same for both
of its directions,

    F_i = sum_j n_ij x_ij

A positive scalar attracts. The sum of the forces of a structure is zero, since x_ij = -x_ji, and
forces rotate with it, since the scalars are invariant. They are not the gradient of an energy.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from pipeline_atoms.domain import Domain, take_own
from pipeline_atoms.potential.potential import compute_forces, compute_stress, compute_volumes
from pipeline_chgnet.model.basis import compute_envelope
from pipeline_chgnet.model.layers import build_perceptron
from pipeline_chgnet.options import CHGNetOptions
from pipeline_core.batch import Batch, count_samples
from pipeline_core.task import Outputs
from pipeline_core.units import GPA

_PAIRS: Final = ([0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2])
"""Pairs of lattice vectors."""


class Features(NamedTuple):
    """Features of atoms and bonds.

    Attributes:
        free: Initial features of atoms, (n_atoms, atom).
        atoms: (n_atoms, atom).
        bonds: (n_bonds, bond).
    """

    free: Tensor
    atoms: Tensor
    bonds: Tensor


class PaperHeads(nn.Module):
    """Force and stress heads of the paper, modified where they cannot be built as printed.

    Forces, equation (7): n_ij = MLP(e_ij) of the features of the bond after the last convolution.
    The perceptron has no biases, so that forces vanish at the cutoff as the features do. Bonds
    beyond the angle cutoff are never updated: there n_ij is a function of the distance alone, for
    all elements.

    Stress, equation (9): its elementwise product with a sum over directions of lattice vectors
    does not rotate with the crystal. Here each pair of directions has its own coefficient,

        sigma = mean_i sum_(a <= b) s_i,ab (L_a (x) L_b + L_b (x) L_a) / (2 |L_a| |L_b|)
        s_i = 1 GPa · MLP(v_i - v_i^0)

    which does; the mean makes it equal for a repeated cell, and the difference from the features
    v_i^0 of the free atom makes it vanish for atoms without neighbours. Other lattice vectors of
    the same lattice still give another stress, for any choice of coefficients.

    Args:
        options: Sizes of the network.
    """

    def __init__(self, options: CHGNetOptions) -> None:
        super().__init__()
        hidden = [options.hidden_features] * 2
        self.force = build_perceptron(options.bond_features, hidden, 1, bias=False)
        self.stress = build_perceptron(options.atom_features, hidden, len(_PAIRS[0]), bias=False)

    def forward(
        self, batch: Batch, vectors: Tensor, features: Features, domain: Domain | None = None
    ) -> Outputs:
        """Return forces (n_atoms, 3) eV/Å and stress (n_samples, 3, 3) eV/Å³.

        Args:
            batch: Samples with their graphs.
            vectors: (n_edges, 3) from receiver to sender, Å.
            features: Features after the last convolution.
            domain: The part of one structure that this rank owns: results are parts of this rank.
        """
        edge_gradients = _compute_edge_gradients(
            self.force(features.bonds).squeeze(1), batch, vectors
        )
        counts = batch["atom_offsets"].diff()
        changes = take_own(features.atoms - features.free, domain)
        coefficients = GPA * self.stress(changes).to(vectors.dtype)  # (n_atoms, 6)
        sums = coefficients.new_zeros(count_samples(batch), len(_PAIRS[0]))
        sums = sums.index_add(0, batch["atom_sample"], coefficients)
        means = sums / (counts[:, None] if domain is None else domain.n_atoms)
        stress = (means[:, :, None, None] * _make_lattice_dyads(batch).to(means.dtype)).sum(1)
        return {"forces": compute_forces(batch, edge_gradients), "stress": stress}


class PairHeads(nn.Module):
    """Forces from symmetric scalars of both atoms of a bond, and their virial as stress.

        n_ij = u(r_ij) MLP([e_ij, v_i + v_j, v_i v_j])
        sigma = sum_ij n_ij x_ij (x) r_ij / (2 V)

    The products are symmetric in both atoms, and the envelope u of the radial basis takes forces
    and stress to zero at the cutoff, with two derivatives. The stress needs no parameters and is
    symmetric.

    Args:
        options: Sizes of the network.
        cutoff: Cutoff of the graph, Å.
    """

    def __init__(self, options: CHGNetOptions, cutoff: float) -> None:
        super().__init__()
        hidden = [options.hidden_features] * 2
        self.force = build_perceptron(options.bond_features + 2 * options.atom_features, hidden, 1)
        self._cutoff, self._power = cutoff, options.envelope_power

    def forward(
        self, batch: Batch, vectors: Tensor, features: Features, domain: Domain | None = None
    ) -> Outputs:
        """Return forces (n_atoms, 3) eV/Å and stress (n_samples, 3, 3) eV/Å³.

        Args:
            batch: Samples with their graphs.
            vectors: (n_edges, 3) from receiver to sender, Å.
            features: Features after the last convolution.
            domain: The part of one structure that this rank owns: results are parts of this rank.
        """
        atoms = features.atoms
        if domain is not None:
            atoms = domain.exchange(take_own(atoms, domain))
        one, other = (
            atoms.index_select(0, ends)
            for ends in batch["edge_index"].index_select(0, batch["bond_edge"]).unbind(1)
        )
        inputs = torch.cat([features.bonds, one + other, one * other], dim=1)
        lengths = torch.linalg.vector_norm(vectors.index_select(0, batch["bond_edge"]), dim=1)
        scalars = self.force(inputs).squeeze(1) * compute_envelope(
            lengths / self._cutoff, self._power
        )
        edge_gradients = _compute_edge_gradients(scalars, batch, vectors)
        return {
            "forces": compute_forces(batch, edge_gradients),
            "stress": compute_stress(batch, vectors, edge_gradients),
        }


def build_heads(options: CHGNetOptions, cutoff: float) -> PaperHeads | PairHeads | None:
    """Return the direct heads that the options select, for a graph with this cutoff, Å."""
    if options.heads == "none":
        return None
    return PaperHeads(options) if options.heads == "paper" else PairHeads(options, cutoff)


def _compute_edge_gradients(scalars: Tensor, batch: Batch, vectors: Tensor) -> Tensor:
    """Return n_ij x_ij / 2 of each edge, (n_edges, 3): both edges of a bond act on both atoms."""
    directions = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    edges = scalars.to(vectors.dtype).index_select(0, batch["edge_bond"])
    edge_gradients: Tensor = 0.5 * edges[:, None] * directions
    return edge_gradients


def _make_lattice_dyads(batch: Batch) -> Tensor:
    """Return the symmetric products of directions of lattice vectors, (n_samples, 6, 3, 3).

    They are zero without a three-dimensional cell.
    """
    has_volume = (compute_volumes(batch) > 0)[:, None, None]
    cell = torch.where(has_volume, batch["cell"], 1)
    directions = cell / torch.linalg.vector_norm(cell, dim=2, keepdim=True)  # (n_samples, 3, 3)
    one, other = (directions[:, rows] for rows in _PAIRS)  # (n_samples, 6, 3)
    dyads: Tensor = one[:, :, :, None] * other[:, :, None, :] * has_volume[..., None]
    return 0.5 * (dyads + dyads.transpose(2, 3))
