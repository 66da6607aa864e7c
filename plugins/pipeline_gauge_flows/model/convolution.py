"""Features of the wider neighbourhood of a link: convolutions of untraced frozen loops.

After the L-CNNs of Favoni et al., Phys. Rev. Lett. 128, 032003, arXiv:2012.12901: loops that start
and end at a site are parallel transported to its neighbours, combined, and multiplied.

| symbol of that paper          | here                                                            |
|-------------------------------|-----------------------------------------------------------------|
| W_i(x)                        | loops (batch, V, channels, N, N), O(x) W O(x)^dag under gauge   |
|                               | transformations                                                 |
| U_k(x) W(x+k) U_k(x)^dag      | `carry_loops`, one step forwards and backwards along each k     |
| omega, alpha                  | `LoopConvolution.coefficients`, real                            |
| activation nu(W) W            | `bound_loops`                                                   |
| 1 among the channels          | `LoopConvolution.constants`                                     |
| Tr W                          | result of `Convolution`                                         |

The input loops are products A_mu(x) B_mu(x)^dag of two learned combinations of each frozen link and
its frozen staples, in place of plaquettes, since the mask `direction` leaves none frozen in two
dimensions. Active links are set to zero, so that the result does not depend on them.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from pipeline_gauge_flows.data.lattice import Lattice, make_neighbours
from pipeline_gauge_flows.graph.masks import Update, find_active_links
from pipeline_gauge_flows.model.staples import clear_active
from pipeline_gauge_flows.options import ConvolutionOptions
from pipeline_kernels.su3 import path_products, staple_layer


class Convolution(nn.Module):
    """Traces of combined loops at both ends of each active link; gauge invariant, and frozen.

    Args:
        options: Layers and width.
        dimension: D.
        n_colours: N.
    """

    def __init__(self, options: ConvolutionOptions, dimension: int, n_colours: int) -> None:
        super().__init__()
        self._is_real = n_colours == 2
        self.coefficients = nn.Parameter(torch.empty(2, 2 * dimension - 1))
        nn.init.xavier_normal_(self.coefficients)
        widths = [dimension, *[options.width] * options.n_layers]
        self.layers = nn.ModuleList(
            LoopConvolution(n_in, options.width, dimension) for n_in in widths[:-1]
        )

    @property
    def n_features(self) -> int:
        """Number of features of an active link."""
        last: LoopConvolution = self.layers[-1]  # type: ignore[assignment]
        return 2 * last.width * (1 if self._is_real else 2)

    def forward(self, links: Tensor, update: Update, lattice: Lattice) -> Tensor:
        """Return features, (batch, n_active, n_features).

        Args:
            links: (batch, D, V, N, N).
            update: Update with the active links.
            lattice: The lattice.
        """
        frozen = clear_active(links, update, lattice)
        coefficients = self.coefficients.to(links.real.dtype)
        forward, backward = make_neighbours(lattice, links.device)
        a, b = staple_layer(frozen.unsqueeze(1), coefficients, forward, backward).unbind(1)
        loops = (a @ b.mH).transpose(1, 2)  # (batch, V, D, N, N)
        for layer in self.layers:
            loops = layer(loops, frozen, lattice)
        traces = loops.diagonal(dim1=-2, dim2=-1).mean(-1)  # (batch, V, width)
        traces = traces.real if self._is_real else torch.view_as_real(traces).flatten(2)
        active = find_active_links(update, lattice, links.device)
        start, end = active % lattice.volume, forward.flatten()[active]
        return torch.cat([traces[:, start], traces[:, end]], dim=-1)


class LoopConvolution(nn.Module):
    """Bounded products P Q^dag of two combinations of the loops at a site and its neighbours.

    Initially P is noise, and Q is 1 plus noise.

    Args:
        n_in: Loops at each site before the layer.
        width: Loops at each site after the layer.
        dimension: D.
    """

    def __init__(self, n_in: int, width: int, dimension: int) -> None:
        super().__init__()
        self.width = width
        self.coefficients = nn.Parameter(torch.empty(2 * width, (1 + 2 * dimension) * n_in))
        nn.init.xavier_normal_(self.coefficients)
        self.constants = nn.Parameter(torch.cat([torch.zeros(width), torch.ones(width)]))

    def forward(self, loops: Tensor, frozen: Tensor, lattice: Lattice) -> Tensor:
        """Return loops (batch, V, width, N, N).

        Args:
            loops: (batch, V, n_in, N, N).
            frozen: Links, zero where they are active, (batch, D, V, N, N).
            lattice: The lattice.
        """
        around = torch.cat([loops, carry_loops(loops, frozen, lattice)], dim=2)
        numbers = torch.view_as_real(around).flatten(3)  # (batch, V, n, 2 N²)
        combined = self.coefficients.to(numbers.dtype) @ numbers
        one = torch.eye(loops.shape[-1], dtype=loops.dtype, device=loops.device)
        offsets = self.constants.to(numbers.dtype)[:, None, None] * one
        combined = torch.view_as_complex(combined.unflatten(3, (*one.shape, 2))) + offsets
        p, q = combined.split(self.width, dim=2)
        return bound_loops(p @ q.mH)


def bound_loops(loops: Tensor) -> Tensor:
    """Return W (1 + tr W W^dag / N)^(-1/2), whose traces over N are below 1, for (..., N, N).

    Unbounded products would grow with each layer, until splines are too steep to be inverted.
    """
    size = torch.view_as_real(loops).square().sum((-3, -2, -1)) / loops.shape[-1]
    return loops * (1 + size).rsqrt()[..., None, None]


def carry_loops(loops: Tensor, frozen: Tensor, lattice: Lattice) -> Tensor:
    """Return the loops of the neighbours of each site, parallel transported to it.

    Args:
        loops: (batch, V, n, N, N).
        frozen: Links, (batch, D, V, N, N).
        lattice: The lattice.

    Returns:
        (batch, V, 2 D n, N, N): loops from x + mu, then from x - mu.
    """
    matrices = torch.cat([frozen.flatten(1, 2), loops.flatten(1, 2)], dim=1)
    return path_products(matrices, *_find_ways(lattice, loops.shape[2], loops.device))


def make_convolution(
    options: ConvolutionOptions | None, dimension: int, n_colours: int
) -> Convolution | None:
    """Return the network described by options; None without options."""
    return None if options is None else Convolution(options, dimension, n_colours)


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _find_ways(lattice: Lattice, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return table and directions of the paths (link, loop, link back) for `path_products`.

    Matrices are numbered mu V + x for links, followed by D V + x n + k for loops.
    """
    here, loop = torch.arange(lattice.volume), torch.arange(n)
    paths, backwards = [], []
    for is_back, sites in ((False, lattice.forward), (True, lattice.backward)):
        for mu, there in enumerate(sites):
            start = there if is_back else here
            link = (mu * lattice.volume + start)[:, None].expand(-1, n)
            paths.append(torch.stack([link, lattice.n_links + n * there[:, None] + loop, link]))
            backwards.append(torch.tensor([is_back, False, not is_back])[:, None].expand(-1, n))
    table = torch.cat(paths, dim=2)  # (3, V, 2 D n)
    return table.to(device), torch.cat(backwards, dim=1).to(device)
