"""The norm and the layer in plain PyTorch."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

EPSILON = 1e-5
"""Added to mean squares before division."""


class Weights(NamedTuple):
    """Parameters, for C channels and H hidden ones, of which the first n and N are true scalars.

    Attributes:
        gain: of the norm in degree 0, `(n,)`.
        shift: of the norm in degree 0, `(n,)`.
        scales: of the norm in degrees above, `(lmax, C)`.
        up: `(lmax + 1, C, H)`.
        up_bias: `(N,)`.
        gates: `(n, (lmax + 1) H - N)`.
        gates_bias: `((lmax + 1) H - N,)`.
        down: `(lmax + 1, H, C)`.
        down_bias: `(n,)`.
    """

    gain: Tensor
    shift: Tensor
    scales: Tensor
    up: Tensor
    up_bias: Tensor
    gates: Tensor
    gates_bias: Tensor
    down: Tensor
    down_bias: Tensor


def normalise(x: Tensor, gain: Tensor, shift: Tensor, scales: Tensor) -> Tensor:
    """Return the norm z of features, with the first parameters of `Weights`."""
    first, others, n, lmax = x[:, :1], x[:, 1:], len(gain), len(scales)
    counts = torch.tensor([2 * degree + 1 for degree in range(1, lmax + 1)], device=x.device)
    degrees = torch.arange(lmax, device=x.device).repeat_interleave(counts)
    mean = others.square().mean(2) @ (1 / (lmax * counts.to(x.dtype)))[degrees]  # (n,)
    factors = (mean + EPSILON).rsqrt()[:, None, None]
    scalars = functional.layer_norm(first[..., :n], (n,), gain, shift, EPSILON).to(x.dtype)
    parts = [scalars, first[..., n:] * factors] if n < x.shape[2] else [scalars]
    return torch.cat([torch.cat(parts, 2), others * (factors * scales[degrees])], dim=1)


def feed_forward(x: Tensor, weights: Weights) -> Tensor:
    """Return `x + V(gated U z)`."""
    z = normalise(x, *weights[:3])
    up, down, n, n_hidden = weights.up, weights.down, len(weights.gain), len(weights.up_bias)
    gates = (z[:, 0, :n] @ weights.gates + weights.gates_bias).sigmoid()
    first = z[:, 0] @ up[0]
    own = functional.silu(first[:, :n_hidden] + weights.up_bias)
    n_gated = up.shape[2] - n_hidden
    scalars = torch.cat([own, first[:, n_hidden:] * gates[:, :n_gated]], 1) if n_gated else own
    bias = functional.pad(weights.down_bias, (0, x.shape[2] - n))
    parts = [(scalars @ down[0] + bias)[:, None]]
    of_degrees = gates[:, n_gated:].unflatten(1, (-1, up.shape[2]))
    for degree in range(1, len(up)):
        y = z[:, degree**2 : (degree + 1) ** 2] @ up[degree]
        parts.append((y * of_degrees[:, degree - 1, None]) @ down[degree])
    return x + torch.cat(parts, dim=1)
