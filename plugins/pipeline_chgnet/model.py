"""CHGNet, version 0.3.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from ase.data import chemical_symbols
from torch import Tensor, nn

from pipeline_chgnet.basis import AngularBasis, RadialBasis, compute_angles
from pipeline_chgnet.layers import AngleUpdate, AtomConvolution, BondConvolution
from pipeline_chgnet.options import N_ELEMENTS, CHGNetOptions
from pipeline_chgnet.topology import Topology
from pipeline_chgnet.weights import read_published
from pipeline_core.batch import Batch, n_samples
from pipeline_core.potential import Potential
from pipeline_core.task import Outputs


class CHGNet(Potential):
    """The charge-informed potential of Deng et al., Nat. Mach. Intell. 5, 1031 (2023).

    Atoms, bonds and angles carry features. Each convolution but the last updates atoms from bonds,
    short bonds from angles, and angles from both. The magnetic moments are read from the atoms
    before the last convolution, the energies after it. The last angle update of the published
    network, which it computes and never uses, is left out.

    Args:
        options: Sizes of the network.
    """

    exact_vectors = True

    def __init__(self, options: CHGNetOptions) -> None:
        super().__init__(("energy", "forces", "stress", "magmoms"))
        self.options = options
        atom, bond, angle = options.atom_features, options.bond_features, options.angle_features
        hidden, n, radial = options.hidden_features, options.convolutions, options.radial_functions
        self.atom_embedding = nn.Embedding(N_ELEMENTS, atom)
        self.radial_basis = RadialBasis(radial, options.cutoff, options.envelope_power)
        self.short_radial_basis = RadialBasis(radial, options.angle_cutoff, options.envelope_power)
        self.angular_basis = AngularBasis(options.angular_functions)
        self.bond_embedding = nn.Linear(radial, bond, bias=False)
        self.atom_weights = nn.Linear(radial, atom, bias=False)
        self.bond_weights = nn.Linear(radial, bond, bias=False)
        self.angle_embedding = nn.Linear(options.angular_functions, angle, bias=False)
        self.atom_convolutions = nn.ModuleList(
            AtomConvolution(atom, bond, hidden) for _ in range(n)
        )
        self.bond_convolutions = nn.ModuleList(
            BondConvolution(atom, bond, angle, hidden) for _ in range(n - 1)
        )
        self.angle_updates = nn.ModuleList(AngleUpdate(atom, bond, angle) for _ in range(n - 2))
        self.magmom = nn.Linear(atom, 1)
        self.readout_norm = nn.LayerNorm(atom)
        self.readout = _build_readout(atom, options.readout_features)

    @classmethod
    def published(cls, version: str = "0.3.0") -> Self:
        """Return the network with published weights and reference energies.

        Raises:
            ValueError: The version is unknown, or the package that holds the weights is missing.
        """
        model = cls(CHGNetOptions())
        model.load_published(version)
        return model

    def load_published(self, version: str) -> None:
        """Take over published weights and reference energies, such as those of version 0.3.0.

        Raises:
            ValueError: The version is unknown or not installed, or this is another network.
        """
        state, theirs = read_published(version), dict(CHGNetOptions())
        changed = [f"model.{name}" for name, value in self.options if value != theirs[name]]
        if changed:
            raise ValueError(
                f"the published weights {version!r} belong to the network with the default options;"
                f" remove {', '.join(changed)}"
            )
        self.load_state_dict(state)

    def energies(self, batch: Batch, vectors: Tensor) -> Outputs:
        """Predict energies and magnetic moments.

        Args:
            batch: Samples with neighbour graph and bond graph.
            vectors: (n_edges, 3) from receiver to sender, Å, in double precision.

        Returns:
            `energy` (n_samples,) eV, without the energies of the free atoms, and `magmoms`
            (n_atoms,) µB.

        Raises:
            ValueError: An element is beyond plutonium, or the batch has no bond graph.
        """
        _check_batch(batch)
        topology = Topology.of(batch)
        atoms, magmoms = self._convolve(
            self.atom_embedding(batch["atomic_numbers"] - 1),
            torch.linalg.vector_norm(vectors.index_select(0, batch["bond_edge"]), dim=1),
            self._embed_angles(vectors, topology),
            topology,
        )
        sites = self.readout(self.readout_norm(atoms)).squeeze(1)  # (n_atoms,)
        energy = sites.new_zeros(n_samples(batch)).index_add(0, batch["atom_sample"], sites)
        return {"energy": energy, "magmoms": magmoms}

    def _embed_angles(self, vectors: Tensor, topology: Topology) -> Tensor:
        arms = vectors.index_select(0, topology.arms)
        arms = arms / torch.linalg.vector_norm(arms, dim=1, keepdim=True)
        first, second = (arms.index_select(0, side) for side in topology.angle_arms)
        basis = self.angular_basis(compute_angles(first, second))
        features: Tensor = self.angle_embedding(basis.to(self.angle_embedding.weight.dtype))
        return features

    def _convolve(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        lengths: Tensor,  # (n_bonds,) Å
        angles: Tensor,  # (n_angles, angle)
        topology: Topology,
    ) -> tuple[Tensor, Tensor]:  # (n_atoms, atom), (n_atoms,)
        """Return the features of atoms after the last convolution, and the moments before it."""
        basis = self.radial_basis(lengths).to(atoms.dtype)
        bonds, atom_weights = self.bond_embedding(basis), self.atom_weights(basis)
        short = topology.short_bonds
        short_basis = self.short_radial_basis(lengths.index_select(0, short)).to(atoms.dtype)
        bond_weights, short_bonds = self.bond_weights(short_basis), bonds.index_select(0, short)
        *first, last = self.atom_convolutions
        for t, convolve_atoms in enumerate(first):
            atoms = convolve_atoms(atoms, bonds, atom_weights, topology)
            before = short_bonds
            short_bonds = self.bond_convolutions[t](atoms, before, angles, bond_weights, topology)
            bonds = bonds.index_add(0, short, short_bonds - before)  # long bonds never change
            if t < len(self.angle_updates):
                angles = self.angle_updates[t](atoms, short_bonds, angles, topology)
        magmoms = self.magmom(atoms).squeeze(1).abs()
        return last(atoms, bonds, atom_weights, topology), magmoms


def _build_readout(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.SiLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, 1))


def _check_batch(batch: Batch) -> None:
    if "angle_edges" not in batch:
        raise ValueError("the graph has no angles; set graph.angle_cutoff and build it again")
    largest = int(batch["atomic_numbers"].max())
    if largest > N_ELEMENTS:
        raise ValueError(
            f"CHGNet knows the elements from H to {chemical_symbols[N_ELEMENTS]}, not "
            f"{chemical_symbols[largest]} (Z = {largest}); remove the structures that hold it"
        )
