"""Gated messages on NVIDIA GPUs: Triton kernels, and sums of messages by `segment_sum`.

Each result has one order of additions: it is the same to the last bit in every run on one kind of
GPU. Tables and factors may be narrower than the parameters; derivatives by them then are too, while
what is calculated and summed is in the type of the parameters.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
import triton
from torch import Tensor

from pipeline_kernels.message.gated import reference
from pipeline_kernels.message.gated.cuda_kernels import (
    Shape,
    compute_gradient,
    compute_messages,
    compute_second,
)
from pipeline_kernels.message.gated.route import (
    N_TABLES,
    Arguments,
    Inputs,
    Route,
    decode,
    make_kept,
    sum_rows,
)

MAX_WIDTH: Final = 128
"""Largest D and H: wider messages exceed the registers of a program."""
NARROW: Final = (torch.bfloat16, torch.float16)


def values(keep: bool, *arguments: *Arguments) -> tuple[Tensor, Tensor]:
    """Implement `reference.values`; nothing is kept."""
    inputs, route = decode(*arguments)
    kept = make_kept(keep, inputs, route)
    if not _has_room(inputs):
        return reference.values(inputs.widen(), route), kept
    messages, shape = _make_messages(inputs, route), _choose_shape(inputs)
    if messages.numel():
        grid = (triton.cdiv(route.n_messages, shape.block),)
        operands = _collect_operands(inputs, route)
        with torch.cuda.device_of(messages):
            compute_messages[grid](messages, *operands, route.n_messages, shape)
    return sum_rows(messages, route.targets), kept


def gradient(
    g: Tensor, with_parameters: bool, kept: Tensor | None, *arguments: *Arguments
) -> list[Tensor]:
    """Implement `reference.gradient`."""
    inputs, route = decode(*arguments)
    if not _has_room(inputs):
        derivative = reference.gradient(g, inputs.widen(), route)
        return inputs.restore_types(derivative.tensors if with_parameters else derivative.data)
    outputs, shape = _make_rows(inputs, route), _choose_shape(inputs)
    sums = _make_sums(inputs, route, shape) if with_parameters else ()
    if outputs[0].numel():
        grid = (_count_programs(route, shape, g.device),)
        operands = _collect_operands(inputs, route, g)
        with torch.cuda.device_of(g):
            compute_gradient[grid](
                outputs, sums or None, *operands, route.n_messages, shape, num_warps=8
            )
    return _sum_outputs(*outputs, sums, inputs, route)


def second(directions: Sequence[Tensor], g: Tensor, *arguments: *Arguments) -> list[Tensor]:
    """Implement `reference.second`."""
    inputs, route = decode(*arguments)
    if not _has_room(inputs):
        wide = [x.to(g.dtype) for x in directions]
        by_g, derivative = reference.second(wide, g, inputs.widen(), route)
        return [by_g, *inputs.restore_types(derivative.tensors)]
    shape = _choose_shape(inputs)
    by_sum, outputs = _make_messages(inputs, route), _make_rows(inputs, route)
    sums = _make_sums(inputs, route, shape)
    if by_sum.numel():
        grid = (_count_programs(route, shape, g.device),)
        changes = tuple(x.contiguous() for x in directions)
        operands = changes, *_collect_operands(inputs, route, g)
        with torch.cuda.device_of(g):
            compute_second[grid](
                (by_sum, *outputs), sums, *operands, route.n_messages, shape, num_warps=8
            )
    return [sum_rows(by_sum, route.targets), *_sum_outputs(*outputs, sums, inputs, route)]


def _has_room(inputs: Inputs) -> bool:
    return max(inputs.gain.shape[2], *(x.shape[1] for x in inputs.parameters)) <= MAX_WIDTH


def _choose_shape(inputs: Inputs) -> Shape:
    """Return the compile-time options; three products in TF32 are as exact as float32."""
    width, hidden = inputs.gain.shape[2], 0 if inputs.weight is None else inputs.weight.shape[1]
    precision = "tf32" if any(x.dtype in NARROW for x in inputs.data) else "tf32x3"
    return Shape(width, hidden, 32 if max(width, hidden) <= 64 else 16, precision)


def _count_programs(route: Route, shape: Shape, device: torch.device) -> int:
    """Choose the number of programs: enough to fill the GPU, as each has its sums."""
    n_blocks: int = triton.cdiv(route.n_messages, shape.block)
    n_programs = 3  # interpreted
    if device.type == "cuda":
        n_programs = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    return min(n_blocks, n_programs)


def _collect_operands(inputs: Inputs, route: Route, g: Tensor | None = None) -> tuple[Any, ...]:
    """Return data, rows and parameters as kernel arguments."""
    data = *inputs.tables, inputs.factors, g
    rows = (None if plan is None else plan.index for plan in route.plans)
    groups = data, rows, inputs.parameters
    return (*(tuple(None if x is None else x.contiguous() for x in group) for group in groups),)


def _make_messages(inputs: Inputs, route: Route) -> Tensor:
    return inputs.gain.new_empty(route.n_messages, inputs.gain.shape[2])


def _make_rows(inputs: Inputs, route: Route) -> tuple[Tensor, Tensor | None]:
    """Allocate derivatives by h and factor of each message."""
    first, *others = inputs.tables
    dtype = first.dtype
    for table in others:
        dtype = torch.promote_types(dtype, table.dtype)
    by_h = first.new_empty(route.n_messages, first.shape[1], dtype=dtype)
    if inputs.factors is None:
        return by_h, None
    return by_h, inputs.factors.new_empty(route.n_messages, inputs.factors.shape[1])


def _make_sums(inputs: Inputs, route: Route, shape: Shape) -> tuple[Tensor, ...]:
    """Allocate derivatives by parameters of each program."""
    n = _count_programs(route, shape, inputs.gain.device)
    return tuple(x.new_empty(n, *x.shape) for x in inputs.parameters)


def _sum_outputs(
    by_h: Tensor, by_factor: Tensor | None, sums: Sequence[Tensor], inputs: Inputs, route: Route
) -> list[Tensor]:
    """Sum the results of kernels over messages and programs."""
    derivatives = [sum_rows(by_h, plan) for plan in route.plans[:N_TABLES]]
    if by_factor is not None:
        derivatives.append(sum_rows(by_factor, route.factors))
    return inputs.restore_types([*derivatives, *(x.sum(0) for x in sums)])
