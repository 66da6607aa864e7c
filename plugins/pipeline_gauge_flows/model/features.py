"""Features of the neighbourhood of an active link: traces of frozen loops.

The paths that close a loop with an active link also close loops with each other, without the link:
tr S_i S_j^dag, of four to six links. They are gauge invariant and frozen.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Conditioner(nn.Module):
    """Network from features of an active link to parameters of its map; initially zero.

    Args:
        n_features: Features of a link; with none all links have the same parameters.
        hidden: Widths of the hidden layers.
        n_parameters: Number of parameters of each link's map.
    """

    def __init__(self, n_features: int, hidden: Sequence[int], n_parameters: int) -> None:
        super().__init__()
        self.constant = nn.Parameter(torch.zeros(n_parameters))
        self.network = None
        if n_features:
            widths = [n_features, *hidden]
            layers: list[nn.Module] = []
            for n_in, n_out in pairwise(widths):
                layers += [nn.Linear(n_in, n_out), nn.SiLU()]
            last = nn.Linear(widths[-1], n_parameters, bias=False)
            nn.init.zeros_(last.weight)
            self.network = nn.Sequential(*layers, last)

    def forward(self, features: Tensor) -> Tensor:
        """Return parameters (..., n_parameters) of features (..., n_features), in float64."""
        constant = self.constant.double()
        if self.network is None:
            return constant.expand(*features.shape[:-1], -1)
        parameters: Tensor = self.network(features.to(self.constant.dtype))
        return parameters.double() + constant


def count_loop_traces(n_paths: int, n_colours: int) -> int:
    """Return the number of features of `compute_loop_traces`."""
    pairs = n_paths * (n_paths - 1) // 2
    return pairs if n_colours == 2 else 2 * pairs


def compute_loop_traces(paths: Tensor) -> Tensor:
    """Return real and imaginary parts of tr S_i S_j^dag, i < j; for SU(2) they are real.

    Args:
        paths: S in SU(N), (..., n_paths, N, N).

    Returns:
        (..., n_features).
    """
    n, n_colours = paths.shape[-3:-1]
    flat = paths.flatten(-2)
    traces = (flat @ flat.mH).flatten(-2)  # (..., n_paths²)
    i, j = torch.triu_indices(n, n, 1, device=paths.device)
    traces = traces[..., i * n + j]
    return traces.real if n_colours == 2 else torch.cat([traces.real, traces.imag], dim=-1)


def compute_staple_traces(paths: Tensor, staple: Tensor) -> Tensor:
    """Return real and imaginary parts of tr S_i S^dag; for SU(2) they are real.

    Args:
        paths: S_i in SU(N), (..., n_paths, N, N).
        staple: S in SU(N), (..., N, N).

    Returns:
        (..., n_features).
    """
    traces = (paths.flatten(-2) @ staple.conj().flatten(-2).unsqueeze(-1)).squeeze(-1)
    return traces.real if staple.shape[-1] == 2 else torch.view_as_real(traces).flatten(-2)


def compute_shape_features(staples: Tensor) -> Tensor:
    """Return invariants of matrices S that vanish for multiples of unitary matrices.

    Args:
        staples: (..., N, N), not all zero.

    Returns:
        tr h^k / N - 1 for k = 2 to N, where h = S S^dag N / tr S S^dag, (..., N - 1).
    """
    n_colours = staples.shape[-1]
    gram = staples @ staples.mH
    size = gram.diagonal(dim1=-2, dim2=-1).real.mean(-1)
    scaled = gram / size[..., None, None]
    power, features = scaled, []
    for _ in range(n_colours - 1):
        features.append((power * scaled.mT).real.sum((-2, -1)) / n_colours - 1)
        power = power @ scaled
    return torch.stack(features, dim=-1)
