"""Gated messages in single precision on the CPU: the loops of `rows.py` over all messages.

Messages are cut into ranges, each with derivatives by the parameters of its own, which are added in
one order: the result does not depend on the number of threads, which share the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor

from pipeline_chgnet.messages import arrays, rows
from pipeline_chgnet.messages.arrays import BLOCK, Case, Directions, Floats, Ints, Outputs, Sums
from pipeline_chgnet.messages.route import Derivative, Inputs, Route
from pipeline_kernels.threads import n_threads

MAX_RANGES: Final = 16
_WORK: Final = 1000
"""Numbers read and written for a message, for the choice of threads."""


def values(route: Route, inputs: Inputs) -> Tensor:
    """Return the messages times their factors, (n_messages, D)."""
    messages = inputs.gain.new_empty(route.n_messages, inputs.gain.shape[-1])
    case, out = _case(route, inputs, messages[:0]), messages.numpy()

    def work(first: int, last: int, bounds: Ints) -> None:
        rows.values(case, arrays.block(case), out, bounds)

    _in_threads(work, route.n_messages)
    return messages


def first_derivative(route: Route, gradient: Tensor, inputs: Inputs) -> Derivative:
    """Return the derivative of a loss with derivative `gradient` (n_targets, D) by the sums."""
    case = _case(route, inputs, gradient)
    outputs, sums = _outputs(case, second=False), _sums(case)

    def work(first: int, last: int, bounds: Ints) -> None:
        own = Sums(*(part[first:last] for part in sums))
        rows.first_derivative(case, arrays.block(case), outputs, own, bounds)

    _in_threads(work, route.n_messages)
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
    outputs, sums = _outputs(case, second=True), _sums(case)
    *tables, factors = [_array(d) for d in directions] + [case.factors] * (4 - len(directions))
    changes = Directions(tuple(tables), factors)

    def work(first: int, last: int, bounds: Ints) -> None:
        own, scratch = Sums(*(part[first:last] for part in sums)), arrays.change(case)
        block = arrays.block(case)
        rows.second_derivative(case, changes, block, scratch, outputs, own, bounds)

    _in_threads(work, route.n_messages)
    return torch.from_numpy(outputs.gradient), _derivative(inputs, outputs, sums)


def _array(tensor: Tensor) -> Floats:
    return tensor.detach().contiguous().numpy()


def _case(route: Route, inputs: Inputs, gradient: Tensor) -> Case:
    width = inputs.gain.shape[-1]
    nothing, weight, bias = inputs.gain.new_empty(0, width), inputs.weight, inputs.bias
    return Case(
        tables=tuple(map(_array, inputs.tables)),
        indices=tuple(route.index(plan).numpy() for plan in route.tables),
        factors=_array(nothing if inputs.factors is None else inputs.factors),
        factor_index=route.index(route.factors).numpy(),
        gradient=_array(gradient),
        target=route.index(route.targets).numpy(),
        weight=np.empty((2, 0, width), np.float32) if weight is None else _array(weight),
        bias=np.zeros((2, width), np.float32) if bias is None else _array(bias.squeeze(1)),
        gain=_array(inputs.gain.squeeze(1)),
        shift=_array(inputs.shift.squeeze(1)),
    )


def _outputs(case: Case, *, second: bool) -> Outputs:
    n, width = len(case.target), case.gain.shape[1]
    return Outputs(
        h=np.empty((n, case.tables[0].shape[1]), np.float32),
        factor=np.empty((n if len(case.factors) else 0, width), np.float32),
        gradient=np.empty((n if second else 0, width), np.float32),
    )


def _sums(case: Case) -> Sums:
    parameters = (case.gain, case.shift, case.weight, case.bias)
    n = _n_ranges(len(case.target))
    return Sums(*(np.zeros((n, *parameter.shape), np.float32) for parameter in parameters))


def _derivative(inputs: Inputs, outputs: Outputs, sums: Sums) -> Derivative:
    parameters = tuple(
        None if parameter is None else torch.from_numpy(parts.sum(0)).view_as(parameter)
        for parameter, parts in zip(inputs[:4], sums, strict=True)
    )
    by_factor = None if inputs.factors is None else torch.from_numpy(outputs.factor)
    return Derivative(parameters, by_factor, torch.from_numpy(outputs.h))


def _n_ranges(n_messages: int) -> int:
    return min(MAX_RANGES, max(1, n_messages // (4 * BLOCK)))


def _in_threads(work: Callable[[int, int, Ints], None], n_messages: int) -> None:
    """Call `work(first, last, bounds)` so that all ranges are done once.

    The ranges from first to last lie between successive `bounds`, last - first + 1 of them.
    """
    n = _n_ranges(n_messages)
    bounds = np.linspace(0, n_messages, n + 1).astype(np.int64)
    threads = min(n, n_threads(_WORK * n_messages))
    if threads == 1:
        work(0, n, bounds)
        return
    shares = pairwise(np.linspace(0, n, threads + 1).astype(int).tolist())
    with ThreadPoolExecutor(threads) as pool:
        runs = [pool.submit(work, a, b, bounds[a : b + 1]) for a, b in shares]
    for run in runs:
        run.result()
