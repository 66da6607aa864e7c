"""Gated messages in plain PyTorch: what the fast implementation must reproduce.

Symbols are those of the package's formulas. Vectors are (2, n_messages, D), core and gate.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from pipeline_kernels.message.gated.route import Inputs, Route, gather_rows, sum_rows

EPSILON: Final = 1e-5
"""ε of the layer normalisation, that of torch."""


def values(inputs: Inputs, route: Route) -> Tensor:
    """Return the sums, (n_targets, D)."""
    h = _gather_halves(inputs, route)
    y = h if inputs.weight is None else _apply(h * h.sigmoid(), inputs)
    z = inputs.gain * y * _scale(y) + inputs.shift
    m = z[0] * z[0].sigmoid() * z[1].sigmoid()
    if inputs.factors is not None:
        m = m * gather_rows(inputs.factors, route.factors)
    return sum_rows(m, route.targets)


def gradient(g: Tensor, inputs: Inputs, route: Route) -> Inputs:
    """Return the derivatives of a loss by all inputs.

    Args:
        g: (n_targets, D), derivative of the loss by the sums.
        inputs: Where derivatives are taken.
        route: Rows of tables, factors and targets.
    """
    h = _gather_halves(inputs, route)
    s = h.sigmoid()
    u = h * s
    y = h if inputs.weight is None else _apply(u, inputs)
    r = _scale(y)
    n = y * r
    z = inputs.gain * n + inputs.shift
    q_core, q_gate = z.sigmoid()
    p = z[0] * q_core

    g_m = gather_rows(g, route.targets)
    by_factor = None
    if inputs.factors is not None:
        by_factor = sum_rows(g_m * p * q_gate, route.factors)
        g_m = g_m * gather_rows(inputs.factors, route.factors)
    dp, dq = q_core + p - p * q_core, q_gate - q_gate**2
    g_z = torch.stack([g_m * q_gate * dp, g_m * p * dq])
    g_n = inputs.gain * g_z
    g_y = r * (g_n - n * (n * g_n).mean(-1, keepdim=True))
    g_h, by_weight, by_bias = g_y, None, None
    if inputs.weight is not None:
        g_h = (g_y @ inputs.weight.mT) * (s + u - u * s)
        by_weight, by_bias = u.mT @ g_y, g_y.sum(1, keepdim=True)
    rows = g_h.transpose(0, 1).flatten(1)  # (n_messages, 2 H)
    return Inputs(
        tables=[sum_rows(rows, plan) for plan in route.tables],
        factors=by_factor,
        gain=(g_z * n).sum(1, keepdim=True),
        shift=g_z.sum(1, keepdim=True),
        weight=by_weight,
        bias=by_bias,
    )


def _gather_halves(inputs: Inputs, route: Route) -> Tensor:
    """Return h, (2, n_messages, H)."""
    parts = zip(inputs.tables, route.tables, strict=True)
    first, second, third = (gather_rows(table, plan) for table, plan in parts)
    return (first + second + third).unflatten(1, (2, -1)).transpose(0, 1)


def _apply(u: Tensor, inputs: Inputs) -> Tensor:
    assert inputs.weight is not None
    assert inputs.bias is not None
    return torch.baddbmm(inputs.bias, u, inputs.weight)


def _scale(y: Tensor) -> Tensor:
    """Return r, (2, n_messages, 1)."""
    return y.square().mean(-1, keepdim=True).add(EPSILON).rsqrt()
