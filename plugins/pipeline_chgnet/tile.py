"""A tile of gated messages: values, first and second derivatives, written out by hand.

With core and gate as the two halves of all vectors, a message m is (Zhou et al., arXiv:2412.20796,
equations (4) to (6); layer normalisation without its means, which centred parameters make zero)

    h = sum_t table_t[row_t]       s = sigmoid(h)           u = h s
    y = u W + b                    r = (mean(y²) + ε)^(-½)   n = y r
    z = gain n + shift             q = sigmoid(z)
    p = z_core q_core              m = p q_gate

For a loss E with dE/dm = g_m, a dot for the change along a direction (h', g_m'), and a_x for the
derivative by x of the change E' of E, the chain rule gives

    g_z = (g_m q_gate dp, g_m p dq)        dp = q_core + p - p q_core,  dq = q_gate - q_gate²
    g_n = gain g_z                         k = mean(n g_n)
    g_y = r (g_n - n k)                    g_h = (g_y Wᵀ) du,           du = s + u - u s

    u' = h' du,   y' = u' W                c = mean(n y')
    n' = r (y' - n c)                      z' = gain n'
    p' = z'_core dp,   q' = z'_gate dq     m' = p' q_gate + p q'

    a_z = ((g_m q' + g_m' q_gate) dp + g_m q_gate d²p z'_core,
           (g_m p' + g_m' p) dq + g_m p d²q z'_gate)
    x = gain a_z - r (c g_n + k y')        a_y = r (x - n (mean(n x) + mean(g_n n')))
    a_h = (a_y Wᵀ) du + (g_y Wᵀ) d²u h'

    d²p = (1 - q_core)(dp + q_core - p q_core),   d²q = dq (1 - 2 q_gate)
    d²u = (1 - s)(du + s - u s)

Without a hidden layer y = h. All intermediates live in scratch memory that the tiles of a call
share: the processor keeps it in cache, and none of it is kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline_chgnet.topology import Route
from pipeline_kernels.message import Segments

EPSILON = 1e-5
"""ε of the layer normalisation, that of torch."""


class Inputs(NamedTuple):
    """What messages are computed from; D features, hidden width H (equal to D if not hidden).

    Attributes:
        gain: (2, 1, D).
        shift: (2, 1, D).
        weight: (2, H, D) or None for no hidden layer.
        bias: (2, 1, D) or None.
        factors: Table of what multiplies the messages, (n, D), or None.
        tables: (n_t, 2 H) each.
    """

    gain: Tensor
    shift: Tensor
    weight: Tensor | None
    bias: Tensor | None
    factors: Tensor | None
    tables: tuple[Tensor, ...]

    @classmethod
    def of(cls, tensors: Sequence[Tensor | None]) -> Inputs:
        """Gather the inputs from a flat sequence: the fields in order, then the tables."""
        return cls(*tensors[:5], tuple(tensors[5:]))  # type: ignore[arg-type]


@dataclass
class Scratch:
    """Memory by name, allocated once for tiles of one size."""

    like: Tensor
    memory: dict[tuple[str, tuple[int, ...]], Tensor] = field(default_factory=dict)

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Return the memory called `name`; what it held before is overwritten by the caller."""
        key = (name, shape)
        if key not in self.memory:
            self.memory[key] = self.like.new_empty(shape)
        return self.memory[key]


def halves(rows: Tensor) -> Tensor:
    """View rows (n, 2 D) as core and gate, (2, n, D)."""
    return rows.unflatten(1, (2, -1)).transpose(0, 1)


class Tile:
    """The messages `rows`, as far as `g_h` needs them; names are those of the module's formulas."""

    def __init__(self, rows: slice, route: Route, inputs: Inputs, scratch: Scratch) -> None:
        self.rows, self.route, self.inputs, self.scratch = rows, route, inputs, scratch
        self.size, self.width = rows.stop - rows.start, inputs.gain.shape[-1]
        u = self.gather(inputs.tables, route.tables, "u")
        n = self._pair("n")
        if inputs.weight is None:
            y = halves(u)
        else:
            self.s = torch.sigmoid(u, out=scratch("s", *u.shape))
            self.u = u.mul_(self.s)
            y = torch.baddbmm(inputs.bias, halves(u), inputs.weight, out=n)
        norm = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        self.r = norm.square_().div_(self.width).add_(EPSILON).rsqrt_()
        self.n = torch.mul(y, self.r, out=n)
        z = torch.addcmul(inputs.shift, inputs.gain, n, out=self._pair("z"))
        self.q = torch.sigmoid(z, out=self._pair("q"))
        self.p = z[0].mul_(self.q[0])
        self.pq = z[1]  # free now; `gradient` puts p q_core here
        self.factors = self.pick(inputs.factors, route.weights, "factors")

    def _pair(self, name: str) -> Tensor:
        return self.scratch(name, 2, self.size, self.width)

    def _single(self, name: str) -> Tensor:
        return self.scratch(name, self.size, self.width)

    def gather(
        self, tables: Sequence[Tensor], plans: Sequence[Segments | None], name: str
    ) -> Tensor:
        """Sum the rows of tables that belong to this tile, (size, 2 H)."""
        total = self.scratch(name, self.size, tables[0].shape[1])
        part = self.scratch("part", *total.shape)
        for t, (table, plan) in enumerate(zip(tables, plans, strict=True)):
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

    def pick(self, table: Tensor | None, plan: Segments | None, name: str) -> Tensor | None:
        """Copy the rows of a table (n, D) that belong to this tile, (size, D)."""
        if table is None:
            return None
        out = self._single(name)
        if plan is None:
            return out.copy_(table[self.rows])
        return torch.index_select(table, 0, plan.index[self.rows], out=out)

    def _mean(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.mul(one, other, out=self._pair("product")).mean(-1, keepdim=True)

    def message(self, out: Tensor) -> Tensor:
        """Write m."""
        return torch.mul(self.p, self.q[1], out=out)

    def gradient(self, g_m: Tensor) -> Tensor:
        """Return g_y."""
        q_core, q_gate = self.q
        self.slopes = self._pair("slopes")  # dp, dq
        torch.mul(self.p, q_core, out=self.pq)
        torch.sub(self.p, self.pq, out=self.slopes[0]).add_(q_core)
        torch.addcmul(q_gate, q_gate, q_gate, value=-1, out=self.slopes[1])
        self.g_z = self._pair("g_z")
        torch.mul(g_m, q_gate, out=self.g_z[0])
        torch.mul(g_m, self.p, out=self.g_z[1])
        self.g_z.mul_(self.slopes)
        self.g_n = torch.mul(self.g_z, self.inputs.gain, out=self._pair("g_n"))
        self.k = self._mean(self.n, self.g_n)
        self.g_y = torch.addcmul(self.g_n, self.n, self.k, value=-1, out=self._pair("g_y"))
        return self.g_y.mul_(self.r)

    def hidden_gradient(self, out: Tensor) -> None:
        """Write g_h, (size, 2 H)."""
        if self.inputs.weight is None:
            halves(out).copy_(self.g_y)
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
        """Return m' for h', after `gradient`."""
        weight = self.inputs.weight
        self.h_t = h_t
        if weight is None:
            self.y_t = halves(h_t)
        else:
            self.u_t = torch.mul(h_t, self._hidden_slope(), out=self.scratch("u_t", *h_t.shape))
            self.y_t = torch.bmm(halves(self.u_t), weight, out=self._pair("y_t"))
        self.c = self._mean(self.n, self.y_t)
        self.n_t = torch.addcmul(self.y_t, self.n, self.c, value=-1, out=self._pair("n_t"))
        self.n_t.mul_(self.r)
        self.z_t = torch.mul(self.n_t, self.inputs.gain, out=self._pair("z_t"))
        self.pq_t = torch.mul(self.z_t, self.slopes, out=self._pair("pq_t"))  # p', q'
        m_t = torch.mul(self.pq_t[0], self.q[1], out=self._single("m_t"))
        return m_t.addcmul_(self.p, self.pq_t[1])

    def second_gradient(self, g_m: Tensor, g_m_t: Tensor | None) -> Tensor:
        """Return a_y for g_m and g_m' (None for zero), after `gradient` and `tangent`."""
        self.a_z = self._second_gate_gradient(g_m, g_m_t)
        mean = self._mean(self.g_n, self.n_t)
        x = torch.mul(self.a_z, self.inputs.gain, out=self._pair("x"))
        x.addcmul_(self.g_n, self.c.mul_(self.r), value=-1)
        x.addcmul_(self.y_t, self.k.mul_(self.r), value=-1)
        mean += self._mean(self.n, x)
        self.a_y = x.addcmul_(self.n, mean, value=-1).mul_(self.r)
        return self.a_y

    def _second_gate_gradient(self, g_m: Tensor, g_m_t: Tensor | None) -> Tensor:
        (q_core, q_gate), (p_t, q_t), z_t = self.q, self.pq_t, self.z_t
        a_z = self._pair("a_z")
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
        torch.mul(self.g_z[1], z_t[1], out=product)  # the part of g_m p d²q z' without 1 - 2 q
        gate.add_(product).sub_(product.mul_(q_gate), alpha=2)
        return a_z

    def second_hidden_gradient(self, out: Tensor) -> None:
        """Write a_h, (size, 2 H)."""
        if self.inputs.weight is None:
            halves(out).copy_(self.a_y)
            return
        curvature = torch.add(self.du, self.rest, out=self.scratch("d2u", *self.u.shape))
        curvature.addcmul_(curvature, self.s, value=-1).mul_(self.h_t)
        torch.mul(self._through_weight(self.a_y, "a_u"), self.du, out=out)
        out.addcmul_(self._through_weight(self.g_y, "g_u"), curvature)


class ParameterGradients:
    """Sums over tiles of the derivatives by gain, shift, weight and bias."""

    def __init__(self, inputs: Inputs) -> None:
        self.gain, self.shift = torch.zeros_like(inputs.gain), torch.zeros_like(inputs.shift)
        self.weight = None if inputs.weight is None else torch.zeros_like(inputs.weight)
        self.bias = None if inputs.bias is None else torch.zeros_like(inputs.bias)

    def add(self, tile: Tile) -> None:
        """Add what follows from `tile.gradient`."""
        self._add_norm(torch.mul(tile.g_z, tile.n, out=tile._pair("product")), tile.g_z)
        if self.weight is not None:
            self._add_hidden(tile.u, tile.g_y)

    def add_second(self, tile: Tile) -> None:
        """Add what follows from `tile.second_gradient`."""
        product = torch.mul(tile.a_z, tile.n, out=tile._pair("product"))
        self._add_norm(product.addcmul_(tile.g_z, tile.n_t), tile.a_z)
        if self.weight is not None:
            self._add_hidden(tile.u, tile.a_y)
            self.weight.baddbmm_(halves(tile.u_t).mT, tile.g_y)

    def _add_norm(self, by_gain: Tensor, by_shift: Tensor) -> None:
        self.gain += by_gain.sum(1, keepdim=True)
        self.shift += by_shift.sum(1, keepdim=True)

    def _add_hidden(self, u: Tensor, g_y: Tensor) -> None:
        assert self.weight is not None
        assert self.bias is not None
        self.weight.baddbmm_(halves(u).mT, g_y)
        self.bias += g_y.sum(1, keepdim=True)

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return them in the order of `Inputs`."""
        return self.gain, self.shift, self.weight, self.bias
