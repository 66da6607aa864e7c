"""Gated messages as one differentiable function that keeps nothing but its inputs.

Values and both derivatives go through the messages tile by tile and compute a tile anew in each
pass. For layers as narrow as these that costs less than to write the intermediates to memory and to
read them again, and the memory of a training step no longer grows with the depth of the derivative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_chgnet.tile import Inputs, ParameterGradients, Scratch, Tile
from pipeline_chgnet.topology import Route
from pipeline_kernels.message import Segments, segment_sum

TILE = {"cpu": 2048, "cuda": 262_144}
"""Messages of one tile by device: what fits the caches; what fills a GPU many times over."""


def gated_messages(
    route: Route,
    tables: Sequence[Tensor],
    gain: Tensor,
    shift: Tensor,
    hidden: tuple[Tensor, Tensor] | None = None,
    factors: Tensor | None = None,
) -> Tensor:
    """Compute messages and add those of one target.

    The formula is that of `pipeline_chgnet.tile`. Twice differentiable by the tables and the
    factors; by the parameters once, also after a differentiation by tables or factors.

    Args:
        route: Rows of the tables that a message reads, rows that it is added to.
        tables: (n_t, 2 H) each: core and gate side by side; the bias is part of one of them.
        gain: (2, 1, D) of the layer normalisation.
        shift: (2, 1, D) of the layer normalisation.
        hidden: Weight (2, H, D) and bias (2, 1, D) of the second linear layer, centred over D;
            without it H = D, and the tables must be centred over the features of each half.
        factors: (n, D) of which `route.weights` takes one row a message, or None.

    Returns:
        (n_targets, D), or (n_messages, D) without targets.
    """
    weight, bias = hidden or (None, None)
    output: Tensor = _GatedMessages.apply(route, gain, shift, weight, bias, factors, *tables)
    return output


def _tiles(route: Route, inputs: Inputs) -> Iterator[Tile]:
    like = inputs.tables[0]
    scratch, size = Scratch(like), TILE.get(like.device.type, TILE["cpu"])
    for start in range(0, route.n_messages, size):
        rows = slice(start, min(start + size, route.n_messages))
        yield Tile(rows, route, inputs, scratch)


def _summed(values: Tensor, plan: Segments | None) -> Tensor:
    return values if plan is None else segment_sum(values, plan)


class _GatedMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, route: Route, *tensors: Tensor | None) -> Tensor:
        ctx.route = route
        ctx.save_for_backward(*tensors)
        inputs = Inputs.of(tensors)
        messages = inputs.gain.new_empty(route.n_messages, inputs.gain.shape[-1])
        for tile in _tiles(route, inputs):
            message = tile.message(messages[tile.rows])
            if tile.factors is not None:
                message.mul_(tile.factors)
        return _summed(messages, route.target)

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
        by_table, by_factor = _rows(route, inputs)
        parameters = ParameterGradients(inputs)
        for tile in _tiles(route, inputs):
            g_m = tile.pick(gradient, route.target, "g_m")
            if tile.factors is not None:
                tile.message(by_factor[tile.rows]).mul_(g_m)
                g_m.mul_(tile.factors)
            tile.gradient(g_m)
            tile.hidden_gradient(by_table[tile.rows])
            parameters.add(tile)
        return (*parameters.tensors(), *_by_input(route, inputs, by_table, by_factor))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *directions: Tensor | None) -> tuple[Tensor | None, ...]:
        if any(direction is not None for direction in directions[:4]):
            raise NotImplementedError(
                "gated messages: the derivative by parameters cannot be differentiated again"
            )
        route, (gradient, *tensors) = ctx.route, ctx.saved_tensors
        inputs = Inputs.of(tensors)
        by_gradient = gradient.new_empty(route.n_messages, inputs.gain.shape[-1])
        by_table, by_factor = _rows(route, inputs)
        parameters = ParameterGradients(inputs)
        for tile in _tiles(route, inputs):
            _second(tile, gradient, directions[4:], by_gradient, by_table, by_factor)
            parameters.add_second(tile)
        return (
            None,
            _summed(by_gradient, route.target),
            *parameters.tensors(),
            *_by_input(route, inputs, by_table, by_factor),
        )


def _rows(route: Route, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Make room for the derivative by h and by the factor of each message."""
    table = inputs.tables[0]
    n_factors = 0 if inputs.factors is None else route.n_messages
    by_table = table.new_empty(route.n_messages, table.shape[1])
    return by_table, table.new_empty(n_factors, inputs.gain.shape[-1])


def _by_input(
    route: Route, inputs: Inputs, by_table: Tensor, by_factor: Tensor
) -> Iterator[Tensor | None]:
    """Sum derivatives by message to derivatives by factors and tables, in the order of `Inputs`."""
    yield None if inputs.factors is None else _summed(by_factor, route.weights)
    for plan in route.tables:
        yield _summed(by_table, plan)


def _second(
    tile: Tile,
    gradient: Tensor,
    directions: Sequence[Tensor | None],
    by_gradient: Tensor,
    by_table: Tensor,
    by_factor: Tensor,
) -> None:
    """Write the rows of a tile of the derivatives of the change along `directions`."""
    route, rows, factors = tile.route, tile.rows, tile.factors
    g_target = tile.pick(gradient, route.target, "g_target")
    g_m, g_m_t = g_target, None
    if factors is not None:
        g_m = torch.mul(g_target, factors, out=tile.scratch("g_m", *factors.shape))
    tile.gradient(g_m)
    m_t = tile.tangent(_direction(tile, directions[1:]))
    if factors is None:
        by_gradient[rows] = m_t
    else:
        torch.mul(m_t, factors, out=by_gradient[rows])
        torch.mul(m_t, g_target, out=by_factor[rows])
        if directions[0] is not None:
            factors_t = tile.pick(directions[0], route.weights, "factors_t")
            by_gradient[rows].addcmul_(tile.message(tile.scratch("m", *m_t.shape)), factors_t)
            g_m_t = g_target.mul_(factors_t)
    tile.second_gradient(g_m, g_m_t)
    tile.second_hidden_gradient(by_table[rows])


def _direction(tile: Tile, directions: Sequence[Tensor | None]) -> Tensor:
    """Return h' of a tile."""
    pairs = zip(directions, tile.route.tables, strict=True)
    given = [(direction, plan) for direction, plan in pairs if direction is not None]
    if not given:
        return tile.scratch("h_t", tile.size, tile.inputs.tables[0].shape[1]).zero_()
    return tile.gather(*zip(*given, strict=True), "h_t")
