"""The CHGNet potential, version 0.3.0."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from pipeline_atoms.domain import Domain, take_own
from pipeline_atoms.potential.planner import Planner
from pipeline_atoms.potential.potential import Potential, extend_heads, select_head
from pipeline_chgnet.model.basis import AngularBasis, RadialBasis, compute_angles
from pipeline_chgnet.model.heads import Features, build_heads
from pipeline_chgnet.model.kernels import KERNELS
from pipeline_chgnet.model.layers import (
    AngleUpdate,
    AtomConvolution,
    BondConvolution,
    build_perceptron,
    update_bonds_and_angles,
)
from pipeline_chgnet.model.published import read_published
from pipeline_chgnet.model.topology import Topology, check_batch
from pipeline_chgnet.options import N_ELEMENTS, CHGNetGraphOptions, CHGNetOptions
from pipeline_core.batch import Batch, count_samples
from pipeline_core.task import Outputs


class CHGNet(Potential):
    """The charge-informed potential of Deng et al., Nat. Mach. Intell. 5, 1031 (2023).

    Atoms, bonds and angles carry features. Each convolution but the last updates atoms from bonds,
    short bonds from angles, and angles from both. The magnetic moments are read from the atoms
    before the last convolution, the energies after it. The last angle update of the published
    network, which it computes and never uses, is left out: of its 412,525 parameters 33,152 go, and
    94 reference energies are not parameters here, which leaves 379,279. FastCHGNet has 411.2K,
    which is 412,525 if core and gate of each perceptron share one layer normalisation, as its text
    suggests (1,280 less), and 429.1K (429,046) with heads, whose sizes are not given. Ours with the
    default sizes have 395,856 with `heads: pair` and 396,111 with `heads: paper`.

    Args:
        options: Sizes of the network, sequence of its layers, and its heads, of forces or of
            energies.
        graph: Cutoffs of edges and of angles, at which the bases of distances end.
    """

    exact_vectors = True
    takes_domains = True

    def __init__(self, options: CHGNetOptions, graph: CHGNetGraphOptions) -> None:
        super().__init__(("energy", "forces", "stress", "magmoms"), options.energy_heads)
        self.options, self.graph = options, graph
        atom, bond, angle = options.atom_features, options.bond_features, options.angle_features
        hidden, n, radial = options.hidden_features, options.convolutions, options.radial_functions
        kernels = KERNELS[options.kernels]
        self.atom_embedding = nn.Embedding(N_ELEMENTS, atom)
        self.radial_basis = RadialBasis(radial, graph.cutoff, options.envelope_power)
        self.short_radial_basis = RadialBasis(radial, graph.angle_cutoff, options.envelope_power)
        self.angular_basis = AngularBasis(options.angular_functions)
        self.bond_embedding = nn.Linear(radial, bond, bias=False)
        self.atom_weights = nn.Linear(radial, atom, bias=False)
        self.bond_weights = nn.Linear(radial, bond, bias=False)
        self.angle_embedding = nn.Linear(options.angular_functions, angle, bias=False)
        self.atom_convolutions = nn.ModuleList(
            AtomConvolution(atom, bond, hidden, kernels) for _ in range(n)
        )
        self.bond_convolutions = nn.ModuleList(
            BondConvolution(atom, bond, angle, hidden, kernels) for _ in range(n - 1)
        )
        self.angle_updates = nn.ModuleList(
            AngleUpdate(atom, bond, angle, kernels) for _ in range(n - 2)
        )
        self.magmom = nn.Linear(atom, 1)
        self.readout_norm = nn.LayerNorm(atom)
        self.readout = build_perceptron(atom, options.readout_features, 1)
        self.further_readouts = nn.ModuleList(
            build_perceptron(atom, options.readout_features, 1) for _ in self.head_names[1:]
        )
        self.heads = build_heads(options, graph.cutoff)
        if self.heads is not None:
            self.direct = frozenset({"forces", "stress"})
        self._planner = Planner(Topology.of, Topology.FIELDS)

    @classmethod
    def published(cls, version: str = "0.3.0") -> Self:
        """Return the network with published weights and reference energies.

        Raises:
            ValueError: The version is unknown, or the package that holds the weights is missing.
        """
        model = cls(CHGNetOptions(), CHGNetGraphOptions())
        model.load_published(version)
        return model

    def load_published(self, version: str) -> None:
        """Load published weights and reference energies, such as those of version 0.3.0.

        Raises:
            ValueError: The version is unknown or not installed, or it belongs to another network.
        """
        state, theirs = read_published(version), dict(CHGNetOptions())
        # Options of how the same network is computed, and heads that start as copies of its own.
        for name in ("kernels", "basis", "energy_heads"):
            theirs[name] = getattr(self.options, name)
        changed = [f"model.{name}" for name, value in self.options if value != theirs[name]]
        graph, cutoffs = CHGNetGraphOptions(), ("cutoff", "angle_cutoff")
        others = [name for name in cutoffs if getattr(self.graph, name) != getattr(graph, name)]
        changed += [f"graph.{name}" for name in others]
        if changed:
            raise ValueError(
                f"the published weights {version!r} belong to the network with the default options;"
                f" remove {', '.join(changed)}"
            )
        self.load_state_dict(self.add_heads(state, {"options": {}}))

    def add_heads(
        self, weights: Mapping[str, Tensor], metadata: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Return the weights of a trained network with the energy heads that it lacks.

        Their readouts start as copies of the first one.

        Args:
            weights: Weights of the network.
            metadata: Metadata from its model file.

        Raises:
            ValueError: It has a head that this one lacks, or has in another place.
        """
        before = metadata["options"].get("energy_heads", [])
        result, chosen = extend_heads(weights, before, self.options.energy_heads)
        first = {name: x for name, x in weights.items() if name.startswith("readout.")}
        for number in range(max(1, len(before)), len(chosen)):
            further = f"further_readouts.{number - 1}."
            result |= {name.replace("readout.", further, 1): x for name, x in first.items()}
        return result

    def compile_inference(self) -> Potential:
        """Return the same potential with its weights as constants (`compiled`)."""
        from pipeline_chgnet.compiled import CompiledCHGNet

        return CompiledCHGNet(self)

    def energies(self, batch: Batch, vectors: Tensor, domain: Domain | None = None) -> Outputs:
        """Predict energies and magnetic moments.

        With domain decomposition, ranks exchange features of atoms between layers (halo exchange),
        and sums over the angles at both ends of bonds that they share.

        Args:
            batch: Samples with neighbour graph and bond graph.
            vectors: (n_edges, 3) from receiver to sender, Å, in double precision.
            domain: The part of one structure that this rank owns.

        Returns:
            `energy` (n_samples,) eV, without the energies of the free atoms, and `magmoms`
            (n_atoms,) µB.

        Raises:
            ValueError: An element is beyond plutonium, or the batch has no bond graph.
        """
        check_batch(batch)
        topology = self._planner.plan(batch, domain)
        features, magmoms = self._convolve(
            self.atom_embedding(batch["atomic_numbers"] - 1),
            self._expand_bonds(batch, vectors, topology),
            self._embed_angles(batch, vectors, topology),
            topology,
            domain,
        )
        own = take_own(features.atoms, domain)
        sites = self._read_out(own, self.find_heads(batch))
        sites = sites.to(own.dtype)  # sums in mixed precision, too, are full
        energy = sites.new_zeros(count_samples(batch)).index_add(0, batch["atom_sample"], sites)
        direct = {} if self.heads is None else self.heads(batch, vectors, features, domain)
        return {"energy": energy, "magmoms": magmoms, **direct}

    def _read_out(self, atoms: Tensor, head: Tensor | None) -> Tensor:
        """Return the energies of atoms, (n_atoms,), each by its head."""
        normed = self.readout_norm(atoms)
        readouts = [self.readout, *self.further_readouts]
        return select_head(torch.cat([readout(normed) for readout in readouts], 1), head)

    def _expand_bonds(
        self, batch: Batch, vectors: Tensor, topology: Topology
    ) -> tuple[Tensor, Tensor]:  # (n_bonds, radial), (n_short, radial)
        short, sample = topology.short_bonds, batch["bond_sample"]
        ends = vectors.index_select(0, batch["bond_edge"])
        lengths = self._expand(_compute_lengths, [ends], sample)
        basis = self._expand(self.radial_basis, [lengths], sample)
        short_basis = self._expand(
            self.short_radial_basis, [lengths.index_select(0, short)], sample[short]
        )
        dtype = self.bond_embedding.weight.dtype
        return basis.to(dtype), short_basis.to(dtype)

    def _embed_angles(self, batch: Batch, vectors: Tensor, topology: Topology) -> Tensor:
        arms = vectors.index_select(0, topology.arms)
        arms = arms / torch.linalg.vector_norm(arms, dim=1, keepdim=True)
        sides = [arms.index_select(0, side) for side in topology.angle_arms]
        basis = self._expand(self._expand_angles, sides, batch["angle_sample"])
        features: Tensor = self.angle_embedding(basis.to(self.angle_embedding.weight.dtype))
        return features

    def _expand_angles(self, first: Tensor, second: Tensor) -> Tensor:
        basis: Tensor = self.angular_basis(compute_angles(first, second))
        return basis

    def _expand(
        self, function: Callable[..., Tensor], columns: Sequence[Tensor], sample: Tensor
    ) -> Tensor:
        """Apply a function to rows of columns, for all samples at once or one by one."""
        if self.options.basis == "batched" or not len(sample):
            return function(*columns)
        counts = sample.bincount().tolist()
        parts = zip(*(column.split(counts) for column in columns), strict=True)
        return torch.cat([function(*part) for part in parts])

    def _convolve(
        self,
        atoms: Tensor,  # (n_atoms, atom)
        bases: tuple[Tensor, Tensor],  # (n_bonds, radial), (n_short, radial)
        angles: Tensor,  # (n_angles, angle)
        topology: Topology,
        domain: Domain | None,
    ) -> tuple[Features, Tensor]:  # (n_atoms,)
        """Return the features after the last convolution, and the moments before it.

        Rows of ghost atoms are up to date wherever they are read.
        """
        free, (basis, short_basis) = atoms, bases
        # Mixed precision is for products: features are summed in the type of the parameters.
        bonds = self.bond_embedding(basis).to(atoms.dtype)
        atom_weights, short = self.atom_weights(basis), topology.short_bonds
        weights, short_bonds = self.bond_weights(short_basis), bonds.index_select(0, short)
        *first, last = self.atom_convolutions
        for t, convolve_atoms in enumerate(first):
            before, old = short_bonds, take_own(atoms, domain)
            own = take_own(convolve_atoms(atoms, bonds, atom_weights, topology), domain)
            request = None if domain is None else domain.start(own)  # while bonds need own atoms
            seen = old if self.options.updates == "parallel" else own
            short_bonds, angles = self._update_short(t, seen, before, angles, weights, topology)
            bonds = bonds.index_add(0, short, short_bonds - before)  # long bonds never change
            atoms = own if request is None else request.wait()
        magmoms = self.magmom(take_own(atoms, domain)).squeeze(1).abs()
        atoms = last(atoms, bonds, atom_weights, topology)
        return Features(free, atoms, bonds), magmoms

    def _update_short(
        self,
        t: int,
        atoms: Tensor,  # (n_atoms, atom)
        bonds: Tensor,  # (n_short, bond)
        angles: Tensor,  # (n_angles, angle)
        weights: Tensor,  # (n_short, bond)
        topology: Topology,
    ) -> tuple[Tensor, Tensor]:  # (n_short, bond), (n_angles, angle)
        """Update short bonds and, except in the last block, angles."""
        convolve = self.bond_convolutions[t]
        if t == len(self.angle_updates):
            return convolve(atoms, bonds, angles, weights, topology), angles
        update = self.angle_updates[t]
        parallel = self.options.updates == "parallel"
        if parallel and self.options.kernels == "fused":
            assert isinstance(convolve, BondConvolution)
            assert isinstance(update, AngleUpdate)
            return update_bonds_and_angles(
                convolve, update, atoms, bonds, angles, weights, topology
            )
        updated = convolve(atoms, bonds, angles, weights, topology)
        return updated, update(atoms, bonds if parallel else updated, angles, topology)


def _compute_lengths(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1)
    return lengths
