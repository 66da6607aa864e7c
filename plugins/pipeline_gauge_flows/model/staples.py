"""Staple networks: learned active loops (section 2 of arXiv:2502.00263).

| symbol of the paper       | here                                                               |
|---------------------------|--------------------------------------------------------------------|
| S_mu^(0), Eq. 4           | links with zeros in place of the active ones                       |
| S^L, S^R, Eq. 6           | computed by `staple_layer`, as R_mu,nu and L_mu,nu                 |
| c_kl, Eq. 7               | `StapleNetwork.coefficients`, real, the same for every direction   |
| S_mu^act, Eq. 8           | result of `StapleNetwork`                                          |
| N_l, N_h                  | `n_layers`, `width`                                                |

Eq. 6 as printed is the adjoint of a term that Eq. 7 can add to S_mu. Here, as U_mu(x) transforms:
R_mu,nu = S_nu(x) S_mu(x+nu) S_nu(x+mu)^dag and L_mu,nu = S_nu(x-nu)^dag S_mu(x-nu) S_nu(x-nu+mu).
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from pipeline_gauge_flows.data.lattice import make_neighbours
from pipeline_gauge_flows.graph.context import Context
from pipeline_kernels.su3 import staple_layer


class StapleNetwork(nn.Module):
    """Linear layers on the staples of all links, 1 -> width -> ... -> width -> 1 channels.

    Initially each layer passes on its first channel, and the last takes one plaquette's staple,
    up to noise: a network that passed on its input at the active links too, as described in the
    paper, would give zero there.

    Args:
        dimension: D.
        width: Channels between the layers, N_h.
        n_layers: Number of layers, N_l.
        plaquette: Initial plaquette of the active loop, by the index of its staple among R_nu,
            L_nu.
        gain: Gain of the noise, Xavier's normal distribution.
    """

    def __init__(
        self, dimension: int, width: int, n_layers: int, plaquette: int, gain: float
    ) -> None:
        super().__init__()
        widths = [1, *[width] * (n_layers - 1), 1]
        n_blocks = 1 + 2 * (dimension - 1)
        self.coefficients = nn.ParameterList()
        for number, (n_in, n_out) in enumerate(pairwise(widths)):
            noise = torch.empty(n_out, n_blocks * n_in)
            if gain:
                nn.init.xavier_normal_(noise, gain)
            else:
                noise.zero_()
            start = torch.zeros(n_out, n_blocks, n_in)
            if number == n_layers - 1:
                start[:, 1 + plaquette] = 1 / n_in
            elif number == 0:
                start[:, 0] = 1
            else:
                start[:, 0] = torch.eye(n_in)
            self.coefficients.append(nn.Parameter(noise + start.flatten(1)))

    def forward(self, links: Tensor, paths: Tensor, context: Context) -> Tensor:
        """Return the active staples, (batch, n_active, N, N).

        Args:
            links: (batch, D, V, N, N).
            paths: Products along the frozen plaquette paths of the active links, (batch,
                n_active, n_paths, N, N).
            context: Tables of the layer.
        """
        *hidden, last = (c.to(links.real.dtype) for c in self.coefficients)
        if not hidden:
            # One layer sees only these frozen plaquette paths, which are given.
            blocks = [1 + number for number in context.paths.numbers]
            staples: Tensor = (last[0][blocks, None, None] * paths).sum(2)
            return staples
        tables = make_neighbours(context.lattice, links.device)
        staples = links.masked_fill(context.mask[:, :, None, None], 0).unsqueeze(1)
        for coefficients in hidden:
            staples = staple_layer(staples, coefficients, *tables)
        staples = staple_layer(staples, last, *tables, mask=context.mask)
        return staples[:, 0].flatten(1, 2)[:, context.active]
