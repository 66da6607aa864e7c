"""The layer as an operator of torch: checks, shapes, first derivatives."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import REAL, check_tensor
from pipeline_kernels.equivariant.feed_forward import cpu, reference
from pipeline_kernels.equivariant.feed_forward.reference import Weights
from pipeline_kernels.operators import (
    define_derivative,
    define_operator,
    differentiate_reference,
)


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
    check_tensor("x", x, ("n", n_degrees**2, channels))
    shapes = [
        *((n,), (n,), (n_degrees - 1, channels), (n_degrees, channels, hidden)),
        *((len(weights.up_bias),), (n, n_gates), (n_gates,), (n_degrees, hidden, channels), (n,)),
    ]
    for name, weight, shape in zip(Weights._fields, weights, shapes, strict=True):
        check_tensor(name, weight, shape, (x.dtype,), x.device)


def normalise(x: Tensor, gain: Tensor, shift: Tensor, scales: Tensor) -> Tensor:
    """Return the norm z of features, with the first parameters of `Weights`; as `feed_forward`."""
    kind = x.device.type
    if kind != "cpu" or x.dtype not in REAL or torch.is_autocast_enabled(kind):
        return reference.normalise(x, gain, shift, scales)
    check_tensor("x", x, ("n", (len(scales) + 1) ** 2, scales.shape[1]))
    return _normalise(x, [gain, shift, scales])


def _define(
    name: str,
    formula: Callable[..., Tensor],
    value: Callable[..., Tensor],
    gradient: Callable[..., list[Tensor]],
) -> Callable[[Tensor, list[Tensor]], Tensor]:
    """Make an operator of features and weights, once differentiable by all, from its C."""

    @define_operator(name, fake=lambda x, weights: x.new_empty(x.shape), cpu=value)
    def operator(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        return formula(x, *weights)

    @define_operator(
        f"{name}_gradient",
        fake=lambda g, x, weights: [y.new_empty(y.shape) for y in (x, *weights)],
        cpu=gradient,
    )
    def differentiate(g: Tensor, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        inputs = [x, *weights]
        gradients = differentiate_reference(formula, inputs, [True] * len(inputs), [g])
        return [y.contiguous() for y in gradients if y is not None]

    def backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Any, ...]:
        by_x, *by_weights = differentiate(g, *saved)
        return by_x, by_weights

    define_derivative(operator, backward)
    return operator


_feed_forward = _define(
    "feed_forward",
    lambda x, *weights: reference.feed_forward(x, Weights(*weights)),
    cpu.feed_forward,
    cpu.gradient,
)
_normalise = _define("degree_norm", reference.normalise, cpu.normalise, cpu.norm_gradient)
