"""The polarizable atom interaction network of Schütt, Unke and Gastegger, arXiv:2102.03150."""

from __future__ import annotations

from math import pi

import torch
from pipeline_atoms.potential.potential import MAX_Z, Potential
from pipeline_core.batch import Batch, count_samples
from pipeline_core.task import Outputs
from torch import Tensor, nn

TINY = 1e-8
"""Under the root of a norm, whose derivative has no value where a vector vanishes by symmetry."""


class Message(nn.Module):
    """What atoms take from their neighbours: the message block of the paper.

        ds_i = sum_j phi_s(s_j) W_s(r_ij)
        dv_i = sum_j v_j phi_vv(s_j) W_vv(r_ij) + phi_vs(s_j) W_vs(r_ij) r_ij / |r_ij|

    Args:
        features: Scalars of an atom, and vectors.
        n_radial: Functions of the distance that the filters W are combined of.
    """

    def __init__(self, features: int, n_radial: int) -> None:
        super().__init__()
        layers = nn.Linear(features, features), nn.SiLU(), nn.Linear(features, 3 * features)
        self.phi = nn.Sequential(*layers)
        self.filters = nn.Linear(n_radial, 3 * features)

    def forward(
        self,
        s: Tensor,  # (n_atoms, features)
        v: Tensor,  # (n_atoms, 3, features)
        edges: Tensor,  # (n_edges, 2), receiver and sender
        units: Tensor,  # (n_edges, 3), from receiver to sender
        radial: Tensor,  # (n_edges, n_radial)
        ends: Tensor,  # (n_edges, 1)
    ) -> tuple[Tensor, Tensor]:
        receivers, senders = edges.unbind(1)
        weights = self.phi(s)[senders] * self.filters(radial) * ends
        scalars, from_vectors, from_scalars = weights.chunk(3, dim=1)
        vectors = v[senders] * from_vectors[:, None] + units[:, :, None] * from_scalars[:, None]
        return s.index_add(0, receivers, scalars), v.index_add(0, receivers, vectors)


class Update(nn.Module):
    """How an atom mixes its own features: the update block of the paper.

        ds = a_ss(s, |V v|) + a_sv(s, |V v|) <U v, V v>
        dv = a_vv(s, |V v|) U v

    Args:
        features: Scalars of an atom, and vectors.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mix = nn.Linear(features, 2 * features, bias=False)
        layers = nn.Linear(2 * features, features), nn.SiLU(), nn.Linear(features, 3 * features)
        self.a = nn.Sequential(*layers)

    def forward(self, s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        left, right = self.mix(v).chunk(2, dim=2)  # U v and V v, (n_atoms, 3, features)
        norms = (right.square().sum(1) + TINY).sqrt()
        scalars, products, vectors = self.a(torch.cat([s, norms], 1)).chunk(3, dim=1)
        return s + scalars + products * (left * right).sum(1), v + vectors[:, None] * left


class PaiNN(Potential):
    """Atoms have scalars s and vectors v; the energy is a sum over atoms of a function of s.

    Args:
        features: Scalars of an atom, and vectors.
        layers: Messages between neighbours.
        n_radial: Functions of the distance, sin(n pi r / r_c) / r.
        cutoff: r_c, angstrom; filters end there as (cos(pi r / r_c) + 1) / 2.
    """

    orders: Tensor

    def __init__(self, features: int, layers: int, n_radial: int, cutoff: float) -> None:
        super().__init__()
        self.cutoff, self.receptive_field = cutoff, layers
        self.register_buffer("orders", torch.arange(1.0, n_radial + 1))
        self.elements = nn.Embedding(MAX_Z + 1, features)
        self.messages = nn.ModuleList(Message(features, n_radial) for _ in range(layers))
        self.updates = nn.ModuleList(Update(features) for _ in range(layers))
        half = nn.Linear(features, features // 2)
        self.readout = nn.Sequential(half, nn.SiLU(), nn.Linear(features // 2, 1))

    def compute_features(self, batch: Batch, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return scalars (n_atoms, features) and vectors (n_atoms, 3, features) of the atoms."""
        lengths = vectors.norm(dim=1, keepdim=True)  # (n_edges, 1)
        radial = torch.sin(self.orders * pi / self.cutoff * lengths) / lengths
        ends = 0.5 * (torch.cos(pi / self.cutoff * lengths) + 1) * (lengths < self.cutoff)
        s = self.elements(batch["atomic_numbers"])
        v = s.new_zeros(len(s), 3, s.shape[1])
        for message, update in zip(self.messages, self.updates, strict=True):
            s, v = message(s, v, batch["edge_index"], vectors / lengths, radial, ends)
            s, v = update(s, v)
        return s, v

    def energies(self, batch: Batch, vectors: Tensor) -> Outputs:
        """Return the energy of each sample, (n_samples,), eV."""
        s, _ = self.compute_features(batch, vectors)
        atoms = self.readout(s).squeeze(1)  # (n_atoms,)
        energy = atoms.new_zeros(count_samples(batch)).index_add(0, batch["atom_sample"], atoms)
        return {"energy": energy}
