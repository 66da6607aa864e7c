"""Gated messages in PyTorch, tile by tile; symbols are those of the package's formulas.

A prime is `_t` here. All intermediates live in scratch memory that the tiles of a call share: it
stays in cache, and none of it outlives the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from pipeline_chgnet.messages.route import EPSILON, Derivative, Inputs, Route
from pipeline_kernels.message import Segments

SIZES: Final = {"cpu": 2048, "cuda": 262_144}
"""Messages of one tile by device: what fits the caches; what fills a GPU many times over."""


def values(route: Route, inputs: Inputs) -> Tensor:
    """Return the messages times their factors, (n_messages, D)."""
    messages = inputs.gain.new_empty(route.n_messages, inputs.gain.shape[-1])
    for tile in _tiles(route, inputs):
        message = tile.message(messages[tile.rows])
        if tile.factors is not None:
            message.mul_(tile.factors)
    return messages


def first_derivative(route: Route, gradient: Tensor, inputs: Inputs) -> Derivative:
    """Return the derivative of a loss with derivative `gradient` (n_targets, D) by the sums."""
    by_h, by_factor = _empty(route, inputs)
    parameters = _ParameterSums(inputs)
    for tile in _tiles(route, inputs):
        g_m = tile.pick(gradient, route.targets, "g_m")
        if tile.factors is not None:
            tile.message(by_factor[tile.rows]).mul_(g_m)
            g_m.mul_(tile.factors)
        tile.gradient(g_m)
        tile.hidden_gradient(by_h[tile.rows])
        parameters.add(tile)
    return Derivative(parameters.tensors(), None if inputs.factors is None else by_factor, by_h)


def second_derivative(
    route: Route, gradient: Tensor, inputs: Inputs, directions: Sequence[Tensor]
) -> tuple[Tensor, Derivative]:
    """Return the derivative of the change of the loss along `directions`.

    Args:
        route: Rows of tables, factors and targets.
        gradient: (n_targets, D), derivative of the loss by the sums.
        inputs: Where derivatives are taken.
        directions: Changes of the tables, and after them of the factors if there are any.

    Returns:
        The derivative by the gradient, by message (n_messages, D), and that by the inputs.
    """
    by_gradient = gradient.new_empty(route.n_messages, inputs.gain.shape[-1])
    by_h, by_factor = _empty(route, inputs)
    parameters = _ParameterSums(inputs)
    for tile in _tiles(route, inputs):
        g_target = tile.pick(gradient, route.targets, "g_target")
        tile.gradient(tile.times_factors(g_target))
        m_t = tile.tangent(tile.gather(directions[:3], "h_t"))
        g_m_t = None
        if tile.factors is None:
            by_gradient[tile.rows] = m_t
        else:
            torch.mul(m_t, tile.factors, out=by_gradient[tile.rows])
            torch.mul(m_t, g_target, out=by_factor[tile.rows])
            factors_t = tile.pick(directions[3], route.factors, "factors_t")
            by_gradient[tile.rows].addcmul_(tile.message(m_t), factors_t)
            g_m_t = g_target.mul_(factors_t)
        tile.second_gradient(g_m_t)
        tile.second_hidden_gradient(by_h[tile.rows])
        parameters.add_second(tile)
    by_input = Derivative(parameters.tensors(), None if inputs.factors is None else by_factor, by_h)
    return by_gradient, by_input


def _tiles(route: Route, inputs: Inputs) -> Iterator[_Tile]:
    like = inputs.gain
    scratch, size = _Scratch(like), SIZES.get(like.device.type, SIZES["cpu"])
    for start in range(0, route.n_messages, size):
        yield _Tile(slice(start, min(start + size, route.n_messages)), route, inputs, scratch)


def _empty(route: Route, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Make room for the derivatives by h and by factor of each message."""
    n_factors = 0 if inputs.factors is None else route.n_messages
    by_h = inputs.gain.new_empty(route.n_messages, inputs.tables[0].shape[1])
    return by_h, inputs.gain.new_empty(n_factors, inputs.gain.shape[-1])


def _halves(rows: Tensor) -> Tensor:
    """View rows (n, 2 D) as core and gate, (2, n, D)."""
    return rows.unflatten(1, (2, -1)).transpose(0, 1)


@dataclass
class _Scratch:
    """Memory by name, allocated once for tiles of one size."""

    like: Tensor
    memory: dict[tuple[str, tuple[int, ...]], Tensor] = field(default_factory=dict)

    def __call__(self, name: str, *shape: int) -> Tensor:
        key = (name, shape)
        if key not in self.memory:
            self.memory[key] = self.like.new_empty(shape)
        return self.memory[key]


class _Tile:
    """The messages `rows`, as far as all passes need them."""

    def __init__(self, rows: slice, route: Route, inputs: Inputs, scratch: _Scratch) -> None:
        self.rows, self.route, self.inputs, self.scratch = rows, route, inputs, scratch
        self.size, self.width = rows.stop - rows.start, inputs.gain.shape[-1]
        u = self.gather(inputs.tables, "u")
        n = self.pair("n")
        if inputs.weight is None:
            y = _halves(u)
        else:
            self.s = torch.sigmoid(u, out=scratch("s", *u.shape))
            self.u = u.mul_(self.s)
            y = torch.baddbmm(inputs.bias, _halves(u), inputs.weight, out=n)
        norm = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        self.r = norm.square_().div_(self.width).add_(EPSILON).rsqrt_()
        self.n = torch.mul(y, self.r, out=n)
        z = torch.addcmul(inputs.shift, inputs.gain, n, out=self.pair("z"))
        self.q = torch.sigmoid(z, out=self.pair("q"))
        self.p = z[0].mul_(self.q[0])
        self.pq = z[1]  # free now; `gradient` puts p q_core here
        self.factors = (
            None if inputs.factors is None else self.pick(inputs.factors, route.factors, "factors")
        )

    def pair(self, name: str) -> Tensor:
        """Return scratch memory for core and gate, (2, size, D)."""
        return self.scratch(name, 2, self.size, self.width)

    def _single(self, name: str) -> Tensor:
        return self.scratch(name, self.size, self.width)

    def gather(self, tables: Sequence[Tensor], name: str) -> Tensor:
        """Sum the rows of tables that belong to this tile, (size, 2 H)."""
        total = self.scratch(name, self.size, tables[0].shape[1])
        part = self.scratch("part", *total.shape)
        for t, (table, plan) in enumerate(zip(tables, self.route.tables, strict=True)):
            if plan is None:
                chosen = table[self.rows]
            else:
                out = total if t == 0 else part
                chosen = torch.index_select(table, 0, plan.index[self.rows], out=out)
            if t > 0:
                total.add_(chosen)
            elif plan is None:
                total.copy_(chosen)
        return total

    def pick(self, table: Tensor, plan: Segments | None, name: str) -> Tensor:
        """Copy the rows of a table (n, D) that belong to this tile, (size, D)."""
        out = self._single(name)
        if plan is None:
            return out.copy_(table[self.rows])
        return torch.index_select(table, 0, plan.index[self.rows], out=out)

    def times_factors(self, g_target: Tensor) -> Tensor:
        """Return g_m of a gradient by sums."""
        if self.factors is None:
            return g_target
        return torch.mul(g_target, self.factors, out=self._single("g_m"))

    def _mean(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.mul(one, other, out=self.pair("product")).mean(-1, keepdim=True)

    def message(self, out: Tensor) -> Tensor:
        """Write m."""
        return torch.mul(self.p, self.q[1], out=out)

    def gradient(self, g_m: Tensor) -> None:
        """Compute g_y."""
        self.g_m = g_m
        q_core, q_gate = self.q
        self.slopes = self.pair("slopes")  # dp, dq
        torch.mul(self.p, q_core, out=self.pq)
        torch.sub(self.p, self.pq, out=self.slopes[0]).add_(q_core)
        torch.addcmul(q_gate, q_gate, q_gate, value=-1, out=self.slopes[1])
        self.g_z = self.pair("g_z")
        torch.mul(g_m, q_gate, out=self.g_z[0])
        torch.mul(g_m, self.p, out=self.g_z[1])
        self.g_z.mul_(self.slopes)
        self.g_n = torch.mul(self.g_z, self.inputs.gain, out=self.pair("g_n"))
        self.k = self._mean(self.n, self.g_n)
        self.g_y = torch.addcmul(self.g_n, self.n, self.k, value=-1, out=self.pair("g_y"))
        self.g_y.mul_(self.r)

    def hidden_gradient(self, out: Tensor) -> None:
        """Write g_h, (size, 2 H)."""
        if self.inputs.weight is None:
            _halves(out).copy_(self.g_y)
        else:
            torch.mul(self._through_weight(self.g_y, "g_u"), self._hidden_slope(), out=out)

    def _hidden_slope(self) -> Tensor:
        self.rest = torch.addcmul(
            self.s, self.s, self.u, value=-1, out=self.scratch("rest", *self.u.shape)
        )
        self.du = torch.add(self.rest, self.u, out=self.scratch("du", *self.u.shape))
        return self.du

    def _through_weight(self, g: Tensor, name: str) -> Tensor:
        weight = self.inputs.weight
        assert weight is not None
        out = self.scratch(name, self.size, 2 * weight.shape[1])
        for half, columns in enumerate(out.chunk(2, dim=1)):
            torch.mm(g[half], weight[half].T, out=columns)
        return out

    def tangent(self, h_t: Tensor) -> Tensor:
        """Return m', after `gradient`."""
        weight = self.inputs.weight
        self.h_t = h_t
        if weight is None:
            self.y_t = _halves(h_t)
        else:
            self.u_t = torch.mul(h_t, self._hidden_slope(), out=self.scratch("u_t", *h_t.shape))
            self.y_t = torch.bmm(_halves(self.u_t), weight, out=self.pair("y_t"))
        self.c = self._mean(self.n, self.y_t)
        self.n_t = torch.addcmul(self.y_t, self.n, self.c, value=-1, out=self.pair("n_t"))
        self.n_t.mul_(self.r)
        self.z_t = torch.mul(self.n_t, self.inputs.gain, out=self.pair("z_t"))
        self.pq_t = torch.mul(self.z_t, self.slopes, out=self.pair("pq_t"))  # p', q'
        m_t = torch.mul(self.pq_t[0], self.q[1], out=self._single("m_t"))
        return m_t.addcmul_(self.p, self.pq_t[1])

    def second_gradient(self, g_m_t: Tensor | None) -> None:
        """Compute a_y for g_m' (None for zero), after `tangent`."""
        self.a_z = self._second_gate_gradient(g_m_t)
        mean = self._mean(self.g_n, self.n_t)
        x = torch.mul(self.a_z, self.inputs.gain, out=self.pair("x"))
        x.addcmul_(self.g_n, self.c.mul_(self.r), value=-1)
        x.addcmul_(self.y_t, self.k.mul_(self.r), value=-1)
        mean += self._mean(self.n, x)
        self.a_y = x.addcmul_(self.n, mean, value=-1).mul_(self.r)

    def _second_gate_gradient(self, g_m_t: Tensor | None) -> Tensor:
        (q_core, q_gate), (p_t, q_t), z_t, g_m = self.q, self.pq_t, self.z_t, self.g_m
        a_z = self.pair("a_z")
        core, gate = a_z
        torch.mul(g_m, q_t, out=core)
        torch.mul(g_m, p_t, out=gate)
        if g_m_t is not None:
            core.addcmul_(g_m_t, q_gate)
            gate.addcmul_(g_m_t, self.p)
        a_z.mul_(self.slopes)
        curvature, product = self._single("curvature"), self._single("curvature_product")
        torch.sub(q_core, self.pq, out=curvature).add_(self.slopes[0])
        curvature.addcmul_(curvature, q_core, value=-1)  # d²p
        core.addcmul_(torch.mul(g_m, q_gate, out=product).mul_(curvature), z_t[0])
        torch.mul(self.g_z[1], z_t[1], out=product)  # g_m p d²q z'_gate without 1 - 2 q_gate
        gate.add_(product).sub_(product.mul_(q_gate), alpha=2)
        return a_z

    def second_hidden_gradient(self, out: Tensor) -> None:
        """Write a_h, (size, 2 H)."""
        if self.inputs.weight is None:
            _halves(out).copy_(self.a_y)
            return
        curvature = torch.add(self.du, self.rest, out=self.scratch("curvature", *self.u.shape))
        curvature.addcmul_(curvature, self.s, value=-1).mul_(self.h_t)
        torch.mul(self._through_weight(self.a_y, "a_u"), self.du, out=out)
        out.addcmul_(self._through_weight(self.g_y, "g_u"), curvature)


class _ParameterSums:
    """Derivatives by gain, shift, weight and bias, summed over tiles."""

    def __init__(self, inputs: Inputs) -> None:
        self.gain, self.shift = torch.zeros_like(inputs.gain), torch.zeros_like(inputs.shift)
        self.weight = None if inputs.weight is None else torch.zeros_like(inputs.weight)
        self.bias = None if inputs.bias is None else torch.zeros_like(inputs.bias)

    def add(self, tile: _Tile) -> None:
        """Add what follows from `tile.gradient`."""
        self._add(torch.mul(tile.g_z, tile.n, out=tile.pair("product")), tile.g_z)
        if self.weight is not None:
            self._add_hidden(tile.u, tile.g_y)

    def add_second(self, tile: _Tile) -> None:
        """Add what follows from `tile.second_gradient`."""
        product = torch.mul(tile.a_z, tile.n, out=tile.pair("product"))
        self._add(product.addcmul_(tile.g_z, tile.n_t), tile.a_z)
        if self.weight is not None:
            self._add_hidden(tile.u, tile.a_y)
            self.weight.baddbmm_(_halves(tile.u_t).mT, tile.g_y)

    def _add(self, by_gain: Tensor, by_shift: Tensor) -> None:
        self.gain += by_gain.sum(1, keepdim=True)
        self.shift += by_shift.sum(1, keepdim=True)

    def _add_hidden(self, u: Tensor, g_y: Tensor) -> None:
        assert self.weight is not None
        assert self.bias is not None
        self.weight.baddbmm_(_halves(u).mT, g_y)
        self.bias += g_y.sum(1, keepdim=True)

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return them in the order of `Inputs`."""
        return self.gain, self.shift, self.weight, self.bias
