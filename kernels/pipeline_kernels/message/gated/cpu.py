"""Gated messages on the CPU, in C: messages go through all steps in blocks that stay in the cache.

Messages are cut into ranges, each with derivatives by the parameters of its own, which are added in
one order: the result does not depend on the number of threads, which share the ranges.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.message.gated.route import N_TABLES, Inputs, Route, sum_rows
from pipeline_kernels.threads import n_threads

C_TYPES: Final = {torch.float32: "float", torch.float64: "double"}
ROUTINES: Final = ("values", "gradient", "second")
MAX_RANGES: Final = 16
MIN_RANGE: Final = 256
"""Messages of a range: what makes the sums by parameters of a range worth their memory."""
WORK: Final = 1000
"""Numbers read and written for a message, for the choice of threads."""


POINTERS: Final = (
    *(f"table_{t}" for t in range(N_TABLES)),
    *("factors", "gain", "shift", "weight", "bias", "gradient"),
    *(f"d_table_{t}" for t in range(N_TABLES)),
    "d_factors",
    *(f"row_{t}" for t in range(N_TABLES)),
    *("factor_row", "target"),
    *("messages", "by_sum", "by_h", "by_factor", "by_gain", "by_shift", "by_weight", "by_bias"),
)
SIZES: Final = ("n_messages", "n_ranges", "width", "hidden")


def values(inputs: Inputs, route: Route) -> Tensor:
    """Implement `reference.values`."""
    messages = inputs.gain.new_empty(route.n_messages, inputs.gain.shape[2])
    _run("values", inputs, route, messages=messages)
    return sum_rows(messages, route.targets)


def gradient(g: Tensor, inputs: Inputs, route: Route, *, with_parameters: bool = True) -> Inputs:
    """Implement `reference.gradient`; without parameters their derivatives are empty."""
    outputs = _make_outputs(inputs, route, with_parameters=with_parameters)
    _run("gradient", inputs, route, gradient=g, **outputs)
    return _collect(outputs, inputs, route)


def second(
    directions: Sequence[Tensor], g: Tensor, inputs: Inputs, route: Route
) -> tuple[Tensor, Inputs]:
    """Return the derivatives of the change of a loss along directions.

    Args:
        directions: Changes of the tables, and after them of the factors if there are any.
        g: (n_targets, D), derivative of the loss by the sums.
        inputs: Where derivatives are taken.
        route: Rows of tables, factors and targets.

    Returns:
        The derivative by `g`, and those by all inputs.
    """
    outputs = _make_outputs(inputs, route, with_parameters=True)
    by_sum = g.new_empty(route.n_messages, g.shape[1])
    changes = {f"d_table_{t}": change for t, change in enumerate(directions[:N_TABLES])}
    if inputs.factors is not None:
        changes["d_factors"] = directions[N_TABLES]
    _run("second", inputs, route, gradient=g, by_sum=by_sum, **changes, **outputs)
    return sum_rows(by_sum, route.targets), _collect(outputs, inputs, route)


def _make_outputs(inputs: Inputs, route: Route, *, with_parameters: bool) -> dict[str, Tensor]:
    """Allocate derivatives by h and factor of each message, by parameters of each range."""
    n, (table, *_), gain = route.n_messages, inputs.tables, inputs.gain
    outputs = {"by_h": gain.new_empty(n, table.shape[1])}
    if inputs.factors is not None:
        outputs["by_factor"] = gain.new_empty(n, gain.shape[2])
    if with_parameters:
        for name in ("gain", "shift", "weight", "bias"):
            if (parameter := getattr(inputs, name)) is not None:
                outputs[f"by_{name}"] = gain.new_empty(_n_ranges(n), *parameter.shape)
    return outputs


def _collect(outputs: Mapping[str, Tensor], inputs: Inputs, route: Route) -> Inputs:
    """Sum what `_make_outputs` has allocated over messages and ranges."""

    def add_ranges(name: str) -> Tensor:
        partial = outputs.get(f"by_{name}")
        return inputs.gain.new_empty(0) if partial is None else partial.sum(0)

    return Inputs(
        tables=[sum_rows(outputs["by_h"], plan) for plan in route.tables],
        factors=sum_rows(outputs["by_factor"], route.factors) if inputs.factors is not None else None,
        gain=add_ranges("gain"),
        shift=add_ranges("shift"),
        weight=None if inputs.weight is None else add_ranges("weight"),
        bias=None if inputs.bias is None else add_ranges("bias"),
    )


def _n_ranges(n_messages: int) -> int:
    return min(MAX_RANGES, max(1, n_messages // MIN_RANGE))


class _Arrays(ctypes.Structure):
    """`Arrays` of native.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in SIZES),
    )


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL | None:
    source = Path(__file__).with_name("native.c").read_text()
    library = native.load("gated", source, REAL=C_TYPES[dtype])
    if library is not None:
        library.memory_size.argtypes = [ctypes.c_void_p]
        library.memory_size.restype = ctypes.c_int64
        for name in ROUTINES:
            function = getattr(library, name)
            function.argtypes, function.restype = [ctypes.c_void_p] * 3, None
    return library


def _run(name: str, inputs: Inputs, route: Route, **others: Tensor) -> None:
    """Call a routine in as many threads as its work repays."""
    tensors: dict[str, Tensor | None] = {"factors": inputs.factors, **others}
    tensors |= {f"table_{t}": table for t, table in enumerate(inputs.tables)}
    tensors |= {name: getattr(inputs, name) for name in ("gain", "shift", "weight", "bias")}
    plans = {f"row_{t}": plan for t, plan in enumerate(route.tables)}
    plans |= {"factor_row": route.factors, "target": route.targets}
    tensors |= {name: plan and plan.index for name, plan in plans.items()}
    present = {name: x.detach().contiguous() for name, x in tensors.items() if x is not None}
    arrays = _Arrays(
        **{name: tensor.data_ptr() for name, tensor in present.items()},
        n_messages=route.n_messages,
        n_ranges=_n_ranges(route.n_messages),
        width=inputs.gain.shape[2],
        hidden=0 if inputs.weight is None else inputs.weight.shape[1],
    )
    library, counter = _library(inputs.gain.dtype), ctypes.c_int64(0)
    assert library is not None
    n_bytes = library.memory_size(ctypes.addressof(arrays))
    routine, arguments = getattr(library, name), (ctypes.addressof(arrays), ctypes.addressof(counter))
    threads = min(arrays.n_ranges, n_threads(WORK * route.n_messages))
    native.parallel(lambda: routine(*arguments, native.memory(n_bytes)), threads)
