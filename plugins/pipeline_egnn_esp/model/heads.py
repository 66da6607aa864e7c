"""Output heads: features of atoms and edges to blocks of a matrix between orbitals."""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_atoms.potential.potential import MAX_Z
from pipeline_egnn_esp.channels import Channels
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.model.coupling import Coupling
from pipeline_egnn_esp.model.maps import join_blocks, split_degrees, take_channels


class CoupledLinear(nn.Module):
    """A linear map of the channels of each degree to the irreps of blocks of this degree.

    Blocks are made of irreps by one product with a constant matrix, without indexing.

    Args:
        channels: Input channels of every degree.
        coupling: Decomposition of blocks into irreps.
        parity: Whether irreps are made of channels of their own parity; of all if not. Irreps of a
            parity that no channel has are zero.
    """

    blocks: Tensor

    def __init__(self, channels: Channels, coupling: Coupling, *, parity: bool) -> None:
        super().__init__()
        self.n_channels, n_natural = channels.total, channels.natural
        degrees = range(coupling.lmax + 1)
        unnatural = [coupling.find_unnatural(degree) & parity for degree in degrees]
        self.counts = [int(kinds.sum()) for kinds in unnatural]
        counts = [len(k) - n for k, n in zip(unnatural, self.counts, strict=True)]
        self.weights = nn.ParameterList(torch.randn(n_natural, n) / sqrt(n_natural) for n in counts)
        self.bias = nn.Parameter(torch.zeros(counts[0]))
        self.unnatural = nn.ParameterDict(
            {
                str(degree): torch.randn(channels.unnatural, n) / sqrt(channels.unnatural)
                for degree, n in enumerate(self.counts)
                if n and channels.unnatural
            }
        )
        # Natural irreps first, as the channels.
        rows = [
            coupling.find_rows(degree)[kinds.int().argsort(stable=True)]
            for degree, kinds in enumerate(unnatural)
        ]
        places = torch.cat([part.T.flatten() for part in rows])
        self.register_buffer("blocks", coupling.make_blocks()[places], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, (lmax + 1)², channels) to blocks, (n, n_common, n_common)."""
        dim = len(self.weights) ** 2
        x = take_channels(x if dim == x.shape[1] else x[:, :dim], self.n_channels)
        parts = [
            (part.flatten(0, 1) @ self._join(degree)).unflatten(0, part.shape[:2]).flatten(1)
            for degree, part in enumerate(split_degrees(x))
        ]
        parts[0] = parts[0] + self.bias
        coupled = torch.cat(parts, dim=1)
        flat = coupled @ self.blocks.flatten(1).to(coupled.dtype)
        return torch.unflatten(flat, 1, self.blocks.shape[1:])

    def _join(self, degree: int) -> Tensor:
        """Return the weights of a degree, (channels, irreps)."""
        natural = self.weights[degree]
        if str(degree) in self.unnatural:
            return join_blocks(natural, self.unnatural[str(degree)])
        n_silent = self.n_channels - len(natural)
        return functional.pad(natural, (0, self.counts[degree], 0, n_silent))


class Heads(nn.Module):
    """Hermitian blocks of atoms and of edges.

    A block of an atom is (B + Bᵀ)/2; one of an edge is (B + Cᵀ)/2 with the block C of the edge in
    the opposite direction. Both are exact in floating-point numbers. Padding is zero. Autocast does
    not reach here: three digits of an energy of many eV are too few.

    Args:
        lmax: Highest degree of the features.
        atoms: Channels of every degree, of atoms.
        edges: Channels of every degree, of edges.
        basis: Shells of each element.
        parity: Whether blocks are made of features of their own parity.

    Raises:
        ValueError: Blocks consist of higher degrees than the features have.
    """

    present: Tensor

    def __init__(
        self, lmax: int, atoms: Channels, edges: Channels, basis: Basis, *, parity: bool
    ) -> None:
        super().__init__()
        self.coupling = Coupling(basis.common)
        self.coupling.require(lmax)
        self.nodes = CoupledLinear(atoms, self.coupling, parity=parity)
        self.edges = CoupledLinear(edges, self.coupling, parity=parity)
        present = torch.zeros(MAX_Z + 1, basis.n_common, dtype=torch.bool)
        for z in basis.elements:
            present[z, torch.from_numpy(basis.find_orbitals(z))] = True
        self.register_buffer("present", present, persistent=False)

    def predict_node_blocks(self, x: Tensor, atomic_numbers: Tensor) -> Tensor:
        """Return the blocks of atoms.

        Args:
            x: (n_atoms, (lmax + 1)², channels)
            atomic_numbers: (n_atoms,)

        Returns:
            (n_atoms, n_common, n_common)
        """
        blocks = self._make_blocks(self.nodes, x)
        return self._mask(0.5 * (blocks + blocks.mT), atomic_numbers, atomic_numbers)

    def project_one_way(self, e: Tensor) -> Tensor:
        """Return the blocks of edges before symmetrisation, (n_edges, n_common, n_common)."""
        return self._make_blocks(self.edges, e)

    def predict_edge_blocks(
        self, blocks: Tensor, reverse: Tensor, receivers: Tensor, senders: Tensor
    ) -> Tensor:
        """Return the blocks of edges.

        Args:
            blocks: From `project_one_way`.
            reverse: The same of the reverse edges.
            receivers: Atomic numbers, (n_edges,).
            senders: Atomic numbers, (n_edges,).

        Returns:
            (n_edges, n_common, n_common)
        """
        return self._mask(0.5 * (blocks + reverse.mT), receivers, senders)

    def _make_blocks(self, linear: CoupledLinear, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            blocks: Tensor = linear(x)
            return blocks

    def _mask(self, blocks: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        mask = self.present[rows][:, :, None] & self.present[columns][:, None, :]
        return blocks.masked_fill(~mask, 0.0)
