"""Gated messages as a differentiable function that keeps nothing but its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from pipeline_chgnet.messages import tiled
from pipeline_chgnet.messages.route import Inputs, Route, summed


def gated_messages(
    route: Route,
    tables: Sequence[Tensor],
    gain: Tensor,
    shift: Tensor,
    hidden: tuple[Tensor, Tensor] | None = None,
    factors: Tensor | None = None,
) -> Tensor:
    """Compute messages and add those of one target; the formula is that of the package.

    Twice differentiable by the tables and the factors; by the parameters once, also after a
    differentiation by tables or factors.

    Args:
        route: Rows of the tables that a message reads, row that it is added to.
        tables: Three of (n_t, 2 H): core and gate side by side; one of them holds the bias.
        gain: (2, 1, D) of the layer normalisation.
        shift: (2, 1, D) of the layer normalisation.
        hidden: Weight (2, H, D) and bias (2, 1, D) of the second linear layer, centred over D;
            without it H = D, and the sum of the tables must be centred over each half.
        factors: (n_factors, D), of which `route.factors` takes one row a message, or None.

    Returns:
        (n_targets, D), or (n_messages, D) without targets.
    """
    weight, bias = hidden or (None, None)
    output: Tensor = _GatedMessages.apply(route, gain, shift, weight, bias, factors, *tables)
    return output


def implementation(inputs: Inputs) -> ModuleType:
    """Return the module that computes fastest on the device and in the precision of the inputs."""
    if inputs.gain.device.type == "cpu" and inputs.gain.dtype == torch.float32:
        from pipeline_chgnet.messages import compiled

        return compiled
    return tiled


class _GatedMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, route: Route, *tensors: Tensor | None) -> Tensor:
        ctx.route = route
        ctx.save_for_backward(*tensors)
        inputs = Inputs.of(tensors)
        return summed(implementation(inputs).values(route, inputs), route.targets)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *_FirstDerivative.apply(ctx.route, gradient, *ctx.saved_tensors))


class _FirstDerivative(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, route: Route, gradient: Tensor, *tensors: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        ctx.route = route
        ctx.save_for_backward(gradient, *tensors)
        ctx.set_materialize_grads(False)
        inputs = Inputs.of(tensors)
        derivative = implementation(inputs).first_derivative(route, gradient, inputs)
        return tuple(derivative.by_input(route))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *directions: Tensor | None) -> tuple[Tensor | None, ...]:
        if any(direction is not None for direction in directions[:4]):
            raise NotImplementedError(
                "gated messages: the derivative by parameters cannot be differentiated again"
            )
        route, (gradient, *tensors) = ctx.route, ctx.saved_tensors
        inputs = Inputs.of(tensors)
        data = [*zip(inputs.tables, directions[5:], strict=True)]
        if inputs.factors is not None:
            data.append((inputs.factors, directions[4]))
        given = [torch.zeros_like(x) if change is None else change for x, change in data]
        by_gradient, derivative = implementation(inputs).second_derivative(
            route, gradient, inputs, given
        )
        return None, summed(by_gradient, route.targets), *derivative.by_input(route)
