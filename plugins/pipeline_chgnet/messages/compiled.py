"""Gated messages in single precision on the CPU: the passes over the blocks of `rows.py`.

Messages are cut into ranges, each with derivatives by the parameters of its own, which are added in
one order: the result does not depend on the number of threads, which share the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from pipeline_chgnet.messages import rows, second_rows
from pipeline_chgnet.messages.route import Derivative, Inputs, Route
from pipeline_chgnet.messages.rows import BLOCK, OPTIONS, Case, F, Outputs, Sums
from pipeline_kernels.threads import n_threads

MAX_RANGES = 16
WORK = 1000
"""Numbers read and written for a message, for the choice of threads."""


def values(route: Route, inputs: Inputs) -> Tensor:
    """Return the messages times their factors, (n_messages, D)."""
    case = _case(route, inputs, inputs.gain.new_empty(0, inputs.gain.shape[-1]))
    messages = inputs.gain.new_empty(route.n_messages, inputs.gain.shape[-1])
    _in_threads(_values, route, case, messages.numpy())
    return messages


def first_derivative(route: Route, gradient: Tensor, inputs: Inputs) -> Derivative:
    """Return the derivative of a loss with derivative `gradient` (n_targets, D) by the sums."""
    case = _case(route, inputs, gradient)
    outputs, sums = _results(route, inputs, case)
    _in_threads(_first_derivative, route, case, outputs, sums)
    return _derivative(inputs, outputs, sums)


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
    case = _case(route, inputs, gradient)
    outputs, sums = _results(route, inputs, case, second=True)
    changes = [_array(change) for change in directions]
    factors_t = changes[3] if inputs.factors is not None else case.factors
    tables_t = tuple(changes[:3])
    _in_threads(_second_derivative, route, case, tables_t, factors_t, outputs, sums)
    return torch.from_numpy(outputs.gradient), _derivative(inputs, outputs, sums)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def _case(route: Route, inputs: Inputs, gradient: Tensor) -> Case:
    width = inputs.gain.shape[-1]
    weight, bias, factors = inputs.weight, inputs.bias, inputs.factors
    return Case(
        tables=tuple(map(_array, inputs.tables)),
        indices=tuple(_array(route.index(plan)) for plan in route.tables),
        factors=np.empty((0, width), F) if factors is None else _array(factors),
        factor_index=_array(route.index(route.factors)),
        gradient=_array(gradient),
        target=_array(route.index(route.targets)),
        weight=np.empty((2, 0, width), F) if weight is None else _array(weight),
        bias=np.zeros((2, width), F) if bias is None else _array(bias.squeeze(1)),
        gain=_array(inputs.gain.squeeze(1)),
        shift=_array(inputs.shift.squeeze(1)),
    )


def _n_ranges(n_messages: int) -> int:
    return min(MAX_RANGES, max(1, n_messages // (4 * BLOCK)))


def _results(
    route: Route, inputs: Inputs, case: Case, second: bool = False
) -> tuple[Outputs, Sums]:
    """Make room for the derivatives by message, and by the parameters for each range."""
    n, width = route.n_messages, inputs.gain.shape[-1]
    n_factors = 0 if inputs.factors is None else n
    outputs = Outputs(
        h=np.empty((n, inputs.tables[0].shape[1]), F),
        factor=np.empty((n_factors, width), F),
        gradient=np.empty((n if second else 0, width), F),
    )
    parameters = (case.gain, case.shift, case.weight, case.bias)
    return outputs, Sums(*(np.zeros((_n_ranges(n), *p.shape), F) for p in parameters))


def _derivative(inputs: Inputs, outputs: Outputs, sums: Sums) -> Derivative:
    parameters = tuple(
        None if parameter is None else torch.from_numpy(parts.sum(0)).view_as(parameter)
        for parameter, parts in zip(inputs[:4], sums, strict=True)
    )
    by_factor = None if inputs.factors is None else torch.from_numpy(outputs.factor)
    return Derivative(parameters, by_factor, torch.from_numpy(outputs.h))


def _in_threads(body: Callable[..., None], route: Route, *arguments: Any) -> None:
    """Run `body(*arguments, bounds, first, last)` for all ranges, shared among threads."""
    n = _n_ranges(route.n_messages)
    bounds = np.linspace(0, route.n_messages, n + 1).astype(np.int64)
    threads = min(n, n_threads(WORK * route.n_messages))
    if threads == 1:
        body(*arguments, bounds, 0, n)
        return
    shares = pairwise(np.linspace(0, n, threads + 1).astype(int).tolist())
    with ThreadPoolExecutor(threads) as pool:
        runs = [pool.submit(body, *arguments, bounds, first, last) for first, last in shares]
    for run in runs:
        run.result()


@njit(**OPTIONS)
def _values(case, messages, bounds, first_range, last_range):
    b = rows.room(case)
    q, p, factors, width = b.q, b.p, case.factors, messages.shape[1]
    for first in range(bounds[first_range], bounds[last_range], BLOCK):
        count = min(BLOCK, bounds[last_range] - first)
        rows.primal(case, first, count, b)
        for i in range(count):
            e, w = first + i, case.factor_index[first + i]
            for f in range(width):
                messages[e, f] = p[i, f] * q[1, i, f]
            if len(factors):
                for f in range(width):
                    messages[e, f] *= factors[w, f]


@njit(**OPTIONS)
def _range_sums(sums, r):
    return Sums(sums.gain[r], sums.shift[r], sums.weight[r], sums.bias[r])


@njit(**OPTIONS)
def _first_derivative(case, outputs, sums, bounds, first_range, last_range):
    b = rows.room(case)
    H, D = outputs.h.shape[1] // 2, case.gain.shape[1]
    du, g_z, g_y = np.ones((2, BLOCK, H), F), np.empty((2, BLOCK, D), F), np.empty((2, BLOCK, D), F)
    g_m, k, product = np.empty((BLOCK, D), F), np.empty((2, BLOCK), F), np.empty((H, D), F)
    for r in range(first_range, last_range):
        own = _range_sums(sums, r)
        for first in range(bounds[r], bounds[r + 1], BLOCK):
            count = min(BLOCK, bounds[r + 1] - first)
            rows.primal(case, first, count, b)
            rows.pull(case, first, count, g_m)
            _store_factor(case, first, count, b, outputs.factor)
            rows.gate_gradient(count, g_m, b, g_z)
            rows.add_norm(case.gain, count, g_z, b.n, own)
            rows.norm_gradient(count, g_z, b, k, g_y)
            if case.weight.shape[1] > 0:
                rows.add_weight(count, b.u, g_y, product, own)
                rows.add_bias(count, g_y, own)
                rows.hidden_slope(count, b, du)
                rows.through_weight(g_y, case.weight, count, b.u)
                rows.store(first, count, b.u, du, outputs.h)
            else:
                rows.store(first, count, g_y, du, outputs.h)  # du stays one


@njit(**OPTIONS)
def _store_factor(case, first, count, b, by_factor):
    if len(by_factor):
        p, q, gradient = b.p, b.q, case.gradient
        for i in range(count):
            t = case.target[first + i]
            for f in range(by_factor.shape[1]):
                by_factor[first + i, f] = gradient[t, f] * p[i, f] * q[1, i, f]


@njit(**OPTIONS)
def _second_derivative(case, tables_t, factors_t, outputs, sums, bounds, first_range, last_range):
    b, t = rows.room(case), second_rows.room(case)
    H, D = outputs.h.shape[1] // 2, case.gain.shape[1]
    hidden, product, ones = case.weight.shape[1] > 0, np.empty((H, D), F), np.ones((2, BLOCK, H), F)
    for r in range(first_range, last_range):
        own = _range_sums(sums, r)
        for first in range(bounds[r], bounds[r + 1], BLOCK):
            count = min(BLOCK, bounds[r + 1] - first)
            rows.primal(case, first, count, b)
            rows.gather(tables_t, case.indices, first, count, t.h_t)
            if hidden:
                second_rows.hidden_tangent(case, count, b, t)
            second_rows.second_gradient(case, factors_t, first, count, b, t, outputs, own)
            if hidden:
                rows.add_weight(count, b.u, t.a_y, product, own)
                rows.add_weight(count, t.u_t, t.g_y, product, own)
                rows.add_bias(count, t.a_y, own)
                rows.through_weight(t.a_y, case.weight, count, b.u)
                rows.through_weight(t.g_y, case.weight, count, t.u_t)
                rows.store(first, count, b.u, t.du, outputs.h)
                rows.add_to_stored(first, count, t.u_t, t.h_t, outputs.h)
            else:
                rows.store(first, count, t.a_y, ones, outputs.h)
