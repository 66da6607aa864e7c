"""The layer on the CPU, in C: rows go through all steps in tiles that stay in the cache.

Rows are cut into ranges, each with derivatives by the parameters of its own, which are added in one
order: no result depends on the number of threads, which share the ranges.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline_kernels.equivariant.feed_forward.reference import Weights
from pipeline_kernels.native import call_routine, compute_size, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads, count_ranges

MIN_RANGE: Final = 48
"""Rows that a range has at least, unless there are fewer."""
POINTERS: Final = ("x", "g", "parameters", "by_parameters", "up", "gates", "down", "out")


def feed_forward(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Implement `reference.feed_forward`."""
    out = x.new_empty(x.shape)
    _run("value", x, Weights(*weights), out)
    return out


def gradient(g: Tensor, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the derivatives of `sum g feed_forward(x)` by features and weights."""
    by_x, plain = x.new_empty(x.shape), Weights(*weights)
    packed = _pack(plain)
    by_packed = x.new_zeros(count_ranges(len(x), MIN_RANGE), sum(part.numel() for part in packed))
    _run("gradient", x, plain, by_x, g=g, by_parameters=by_packed)
    parts = by_packed.sum(0).split([part.numel() for part in packed])
    by = Weights(*(part.view(p.shape) for part, p in zip(parts, packed, strict=True)))
    by = by._replace(
        up_bias=by.up_bias[: len(plain.up_bias)],
        down=by.down.mT,
        down_bias=by.down_bias[: len(plain.down_bias)],
    )
    # Results of an operator share no memory.
    return [by_x, *(part.clone(memory_format=torch.contiguous_format) for part in by)]


def normalise(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Implement `reference.normalise`."""
    out = x.new_empty(x.shape)
    _call("norm_value", x, weights, _measure_norm(x, weights), out=out)
    return out


def norm_gradient(g: Tensor, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the derivatives of `sum g normalise(x)` by features and weights."""
    by_x, sizes = x.new_empty(x.shape), [part.numel() for part in weights]
    by_packed = x.new_zeros(count_ranges(len(x), MIN_RANGE), sum(sizes))
    shape = _measure_norm(x, weights)
    _call("norm_gradient", x, weights, shape, g=g, by_parameters=by_packed, out=by_x)
    parts = zip(by_packed.sum(0).split(sizes), weights, strict=True)
    return [by_x, *(part.clone().view(W.shape) for part, W in parts)]


def _measure_norm(x: Tensor, weights: Sequence[Tensor]) -> tuple[int, ...]:
    """Return lmax, numbers of channels and, without a layer, hidden ones, and true scalars."""
    gain, _, scales = weights
    return len(scales), x.shape[2], 0, len(gain), 0


def _pack(weights: Weights) -> list[Tensor]:
    """Return the parameters as native.c has them: biases of all channels, `down` transposed."""
    channels, hidden = weights.up.shape[1:]
    return [
        *weights[:4],
        pad(weights.up_bias, (0, hidden - len(weights.up_bias))),
        *weights[5:7],
        weights.down.mT,
        pad(weights.down_bias, (0, channels - len(weights.down_bias))),
    ]


def _run(name: str, x: Tensor, weights: Weights, out: Tensor, **others: Tensor) -> None:
    """Call a routine of the layer."""
    tensors = {"down": weights.down, **others}
    if name == "gradient":
        tensors |= {"up": weights.up.mT, "gates": weights.gates.mT}
    n_degrees, channels, hidden = weights.up.shape
    shape = n_degrees - 1, channels, hidden, len(weights.gain), len(weights.up_bias)
    _call(name, x, _pack(weights), shape, out=out, **tensors)


def _call(
    name: str, x: Tensor, weights: Sequence[Tensor], shape: tuple[int, ...], **others: Tensor
) -> None:
    """Call a routine in as many threads as its work repays.

    `shape` are lmax, channels, hidden ones, and true scalars of both.
    """
    if x.numel() == 0:
        return
    library = load_library("feed_forward", x.dtype)
    packed = torch.cat([part.flatten() for part in weights])
    tensors = {"x": x, "parameters": packed, **others}
    plain = {key: make_plain(tensor) for key, tensor in tensors.items()}
    n_ranges = count_ranges(len(x), MIN_RANGE)
    work = pack(*map(plain.get, POINTERS), len(x), n_ranges, len(packed), *shape)
    n_bytes = compute_size(library, "memory_size", work) * x.element_size()
    n_threads = min(n_ranges, choose_threads(x.numel() + 2 * x.shape[1] * shape[2] * len(x)))
    call_routine(library, name, work, n_threads=n_threads, n_bytes=n_bytes)
