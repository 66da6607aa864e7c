"""The layer as an operator of torch: checks, shapes, first derivatives."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.equivariant.feed_forward import cpu, reference
from pipeline_kernels.equivariant.feed_forward.reference import Weights
from pipeline_kernels.operators import (
    define_derivative,
    define_operator,
    differentiate_reference,
)

DTYPES = (torch.float32, torch.float64)


def feed_forward(x: Tensor, weights: Weights) -> Tensor:
    """Add the output of the layer to features.

    On the CPU nothing is kept for the backward pass but the features, and it is differentiable
    once. Elsewhere, and under autocast, plain PyTorch calculates.

    Args:
        x: `(n, (lmax + 1)^2, C)`, float32 or float64.
        weights: parameters, of the type of `x`.

    Returns:
        Of the shape of `x`.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(x, weights)
    kind = x.device.type
    if kind != "cpu" or torch.is_autocast_enabled(kind):
        return reference.feed_forward(x, weights)
    return _feed_forward(x, list(weights))


def _check(x: Tensor, weights: Weights) -> None:
    """Raise `ValueError` unless all fit together."""
    (n_degrees, channels, hidden), n = weights.up.shape, len(weights.gain)
    n_gates = n_degrees * hidden - len(weights.up_bias)
    if x.shape[1:] != (n_degrees**2, channels) or x.dtype not in DTYPES:
        raise ValueError(
            f"x: expected (n, {n_degrees**2}, {channels}) of a dtype of {DTYPES}, as the weights "
            f"are, got {tuple(x.shape)} of {x.dtype}"
        )
    shapes = [
        *((n,), (n,), (n_degrees - 1, channels), (n_degrees, channels, hidden)),
        *((len(weights.up_bias),), (n, n_gates), (n_gates,), (n_degrees, hidden, channels), (n,)),
    ]
    for name, weight, shape in zip(Weights._fields, weights, shapes, strict=True):
        if weight.shape != shape or (weight.dtype, weight.device) != (x.dtype, x.device):
            raise ValueError(
                f"{name}: expected {shape} of {x.dtype} on {x.device}, got {tuple(weight.shape)} "
                f"of {weight.dtype} on {weight.device}"
            )


def normalise(x: Tensor, gain: Tensor, shift: Tensor, scales: Tensor) -> Tensor:
    """Return the norm z of features, with the first parameters of `Weights`; as `feed_forward`."""
    kind = x.device.type
    if kind != "cpu" or x.dtype not in DTYPES or torch.is_autocast_enabled(kind):
        return reference.normalise(x, gain, shift, scales)
    if x.shape[1:] != ((len(scales) + 1) ** 2, scales.shape[1]):
        raise ValueError(
            f"x: expected (n, {(len(scales) + 1) ** 2}, {scales.shape[1]}) as the scales, got "
            f"{tuple(x.shape)}"
        )
    return _normalise(x, [gain, shift, scales])


@define_operator("feed_forward", fake=lambda x, weights: x.new_empty(x.shape), cpu=cpu.feed_forward)
def _feed_forward(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    return reference.feed_forward(x, Weights(*weights))


@define_operator(
    "feed_forward_gradient",
    fake=lambda g, x, weights: [y.new_empty(y.shape) for y in (x, *weights)],
    cpu=cpu.gradient,
)
def _gradient(g: Tensor, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Differentiate by features and weights."""
    inputs = [x, *weights]
    gradients = differentiate_reference(
        lambda *y: reference.feed_forward(y[0], Weights(*y[1:])), inputs, [True] * len(inputs), [g]
    )
    return [y.contiguous() for y in gradients if y is not None]


def _backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Any, ...]:
    by_x, *by_weights = _gradient(g, *saved)
    return by_x, by_weights


define_derivative(_feed_forward, _backward)


@define_operator("degree_norm", fake=lambda x, weights: x.new_empty(x.shape), cpu=cpu.normalise)
def _normalise(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    return reference.normalise(x, *weights)


@define_operator(
    "degree_norm_gradient",
    fake=lambda g, x, weights: [y.new_empty(y.shape) for y in (x, *weights)],
    cpu=cpu.norm_gradient,
)
def _norm_gradient(g: Tensor, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Differentiate by features and weights."""
    inputs = [x, *weights]
    gradients = differentiate_reference(reference.normalise, inputs, [True] * len(inputs), [g])
    return [y.contiguous() for y in gradients if y is not None]


def _norm_backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Any, ...]:
    by_x, *by_weights = _norm_gradient(g, *saved)
    return by_x, by_weights


define_derivative(_normalise, _norm_backward)
