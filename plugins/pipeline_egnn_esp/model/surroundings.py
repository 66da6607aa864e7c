"""First features of edges from the atoms around their middle."""

from typing import Final

import torch
from torch import Tensor, nn

from pipeline_egnn_esp.channels import Channels
from pipeline_egnn_esp.model.maps import DegreeLinear
from pipeline_egnn_esp.model.messages import Edges, RadialWeights
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.equivariant.density import DensityBasis, bond_density

_SCALE: Final = 0.5
"""Scale of the first weights, so that features are about 1: densities of degree 0 are about 2 in
hafnia."""


class Surroundings(nn.Module):
    """Sums over the atoms around the middle of an edge, weighted by its length and elements.

        e[l] = F_l(length, elements) · (W_l A[l] + b δ_l0)

    with the density A of `pipeline_kernels.equivariant.density`. For a sum of atomic potentials,
    three-centre integrals are sums over single atoms of this kind; here each term is a factor of
    the edge times a factor of the atom, up to degree `lmax`.

    Args:
        options: Sizes of the network, with a `bond_cutoff`.
        n_elements: Number of elements.
    """

    degrees: Tensor

    def __init__(self, options: ESPOptions, n_elements: int) -> None:
        super().__init__()
        assert options.bond_cutoff is not None
        sizes = options.lmax, options.bond_functions, options.bond_cutoff, n_elements
        self.basis = DensityBasis(*sizes)
        outputs = Channels(options.split(options.channels).natural)
        self.radial = RadialWeights(options, n_elements, outputs.total)
        self.map = DegreeLinear(options.lmax, Channels(self.basis.shape[1]), outputs)
        with torch.no_grad():
            self.map.weights.mul_(_SCALE)
        degrees = [degree for degree in range(options.lmax + 1) for _ in range(2 * degree + 1)]
        self.register_buffer("degrees", torch.tensor(degrees), persistent=False)

    def forward(self, vectors: Tensor, edges: Edges) -> Tensor:
        """Return the features, (n_edges, (lmax + 1)², natural channels).

        Args:
            vectors: Vectors from receivers to senders, (n_edges, 3), Å.
            edges: The same edges: all edges of some receivers.
        """
        senders, dtype = edges.elements[:, 1], edges.frames.dtype
        density = bond_density(vectors, senders, edges.receivers, self.basis, dtype)
        features: Tensor = self.map(density) * self.radial(edges)[:, self.degrees]
        return features
