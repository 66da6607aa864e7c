"""Gated messages in plain PyTorch, the oracle of the fast implementations.

Symbols follow the package's formulas; a prime is `d_` here. Vectors are (2, n_messages, D),
core and gate.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from pipeline_kernels.message.gated.route import N_TABLES, Inputs, Route, gather_rows, sum_rows

EPSILON: Final = 1e-5
"""ε of the layer normalisation, as in torch."""


class State(NamedTuple):
    """Intermediate results of messages."""

    u: Tensor  # (2, n_messages, H)
    s: Tensor
    r: Tensor  # (2, n_messages, 1)
    n: Tensor  # (2, n_messages, D)
    q: Tensor
    p: Tensor  # (n_messages, D)

    @property
    def m(self) -> Tensor:
        """The message, (n_messages, D)."""
        return self.p * self.q[1]

    @property
    def du(self) -> Tensor:
        """Derivative of u by h, (2, n_messages, H)."""
        return self.s + self.u - self.u * self.s

    @property
    def slopes(self) -> Tensor:
        """Derivatives dp and dq by z, (2, n_messages, D)."""
        q_core, q_gate = self.q
        return torch.stack([q_core + self.p - self.p * q_core, q_gate - q_gate**2])

    @property
    def curvatures(self) -> Tensor:
        """Derivatives d²p and d²q, (2, n_messages, D)."""
        (q_core, q_gate), (dp, dq) = self.q, self.slopes
        return torch.stack([(1 - q_core) * (dp + q_core - self.p * q_core), dq * (1 - 2 * q_gate)])


def values(inputs: Inputs, route: Route) -> Tensor:
    """Return the sums, (n_targets, D)."""
    return sum_rows(_compute_state(inputs, route).m * _gather_factors(inputs, route), route.targets)


def gradient(g: Tensor, inputs: Inputs, route: Route) -> Inputs:
    """Return the derivatives of a loss by all inputs.

    Args:
        g: (n_targets, D), derivative of the loss by the sums.
        inputs: Inputs at which derivatives are taken.
        route: Rows of tables, factors and targets.
    """
    x, g_target = _compute_state(inputs, route), gather_rows(g, route.targets)
    g_z = _differentiate_gate(x, g_target * _gather_factors(inputs, route))
    g_y = _differentiate_norm(x, inputs.gain * g_z)
    projected = inputs.projection is not None
    hidden = inputs.weight is not None and inputs.bias is not None
    g_h = _pull_back(g_y, inputs) * x.du if hidden else g_y
    return Inputs(
        tables=_sum_tables(g_h, inputs, route),
        factors=_sum_factors(g_target * x.m, inputs, route),
        projection=_gather_features(inputs.tables, route).mT @ g_h if projected else None,
        gain=_add(g_z * x.n),
        shift=_add(g_z),
        weight=x.u.mT @ g_y if hidden else None,
        bias=_add(g_y) if hidden else None,
    )


def second(
    directions: Sequence[Tensor], g: Tensor, inputs: Inputs, route: Route
) -> tuple[Tensor, Inputs]:
    """Return the derivatives of the change of a loss along directions.

    Args:
        directions: Changes of the tables, and after them of the factors if there are any.
        g: (n_targets, D), derivative of the loss by the sums.
        inputs: Inputs at which derivatives are taken.
        route: Rows of tables, factors and targets.

    Returns:
        The derivative by `g`, and those by all inputs.
    """
    x, g_target = _compute_state(inputs, route), gather_rows(g, route.targets)
    factors, d_factors = _gather_factors(inputs, route), torch.zeros_like(g_target)
    if inputs.factors is not None:
        d_factors = gather_rows(directions[N_TABLES], route.factors)
    g_m, d_g_m = g_target * factors, g_target * d_factors
    g_z = _differentiate_gate(x, g_m)
    g_n = inputs.gain * g_z
    g_y = _differentiate_norm(x, g_n)

    d_h = _gather_halves(directions[:N_TABLES], inputs.projection, route)
    hidden = inputs.weight is not None and inputs.bias is not None
    d_u = d_h * x.du if hidden else d_h
    d_y = d_u @ inputs.weight if inputs.weight is not None else d_u
    c, k = _mean(x.n * d_y), _mean(x.n * g_n)
    d_n = x.r * (d_y - x.n * c)
    d_z = inputs.gain * d_n
    d_p, d_q = d_z * x.slopes
    d_m = d_p * x.q[1] + x.p * d_q

    by_slope = torch.stack([g_m * d_q + d_g_m * x.q[1], g_m * d_p + d_g_m * x.p])
    by_curvature = torch.stack([g_m * x.q[1], g_m * x.p])
    a_z = by_slope * x.slopes + by_curvature * x.curvatures * d_z
    a_n = inputs.gain * a_z - x.r * (c * g_n + k * d_y)
    a_y = x.r * (a_n - x.n * (_mean(x.n * a_n) + _mean(g_n * d_n)))
    a_h, g_h = a_y, g_y
    if hidden:
        d2u, g_u = (1 - x.s) * (x.du + x.s - x.u * x.s), _pull_back(g_y, inputs)
        a_h, g_h = _pull_back(a_y, inputs) * x.du + g_u * d2u * d_h, g_u * x.du
    by_projection = None
    if inputs.projection is not None:
        features, d_features = (_gather_features(t, route) for t in (inputs.tables, directions))
        by_projection = features.mT @ a_h + d_features.mT @ g_h
    return sum_rows(d_m * factors + x.m * d_factors, route.targets), Inputs(
        tables=_sum_tables(a_h, inputs, route),
        factors=_sum_factors(g_target * d_m, inputs, route),
        projection=by_projection,
        gain=_add(g_z * d_n + a_z * x.n),
        shift=_add(a_z),
        weight=x.u.mT @ a_y + d_u.mT @ g_y if hidden else None,
        bias=_add(a_y) if hidden else None,
    )


def _compute_state(inputs: Inputs, route: Route) -> State:
    h = _gather_halves(inputs.tables, inputs.projection, route)
    s = h.sigmoid()
    u, y = h * s, h
    if inputs.weight is not None and inputs.bias is not None:
        y = u @ inputs.weight + inputs.bias
    r = (_mean(y**2) + EPSILON).rsqrt()
    n = y * r
    z = inputs.gain * n + inputs.shift
    q = z.sigmoid()
    return State(u, s, r, n, q, z[0] * q[0])


def _differentiate_gate(x: State, g_m: Tensor) -> Tensor:
    """Return g_z."""
    return torch.stack([g_m * x.q[1], g_m * x.p]) * x.slopes


def _differentiate_norm(x: State, g_n: Tensor) -> Tensor:
    """Return g_y."""
    return x.r * (g_n - x.n * _mean(x.n * g_n))


def _pull_back(g_y: Tensor, inputs: Inputs) -> Tensor:
    """Return g_y Wᵀ."""
    assert inputs.weight is not None
    return g_y @ inputs.weight.mT


def _gather_halves(tables: Sequence[Tensor], projection: Tensor | None, route: Route) -> Tensor:
    """Return the sum of the rows of tables, (2, n_messages, H)."""
    first, second, third = map(gather_rows, tables, route.tables)
    if projection is None:
        return _split_halves(first + second + third)
    return _split_halves(first + second) + third @ projection


def _split_halves(rows: Tensor) -> Tensor:
    """Return core and gate of rows (n_messages, 2 H), (2, n_messages, H)."""
    halves: Tensor = rows.unflatten(1, (2, -1))
    return halves.transpose(0, 1)


def _gather_features(tables: Sequence[Tensor], route: Route) -> Tensor:
    """Gather the rows of the last table for each message, (n_messages, K)."""
    return gather_rows(tables[N_TABLES - 1], route.tables[-1])


def _gather_factors(inputs: Inputs, route: Route) -> Tensor:
    """Return the factor of each message, (n_messages, D), or one."""
    if inputs.factors is None:
        return torch.ones_like(inputs.gain[0])
    return gather_rows(inputs.factors, route.factors)


def _sum_tables(by_h: Tensor, inputs: Inputs, route: Route) -> list[Tensor]:
    """Sum derivatives by h (2, n_messages, H) for each row of the tables."""
    rows = by_h.transpose(0, 1).flatten(1)
    last = rows if inputs.projection is None else (by_h @ inputs.projection.mT).sum(0)
    return [sum_rows(x, plan) for x, plan in zip((rows, rows, last), route.tables, strict=True)]


def _sum_factors(by_factor: Tensor, inputs: Inputs, route: Route) -> Tensor | None:
    return None if inputs.factors is None else sum_rows(by_factor, route.factors)


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def _add(x: Tensor) -> Tensor:
    """Sum over messages, (2, 1, D)."""
    return x.sum(1, keepdim=True)
