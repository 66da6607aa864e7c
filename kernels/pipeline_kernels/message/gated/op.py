"""Gated messages as `torch.library` operators: devices, shapes, derivatives, checks."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from pipeline_kernels.checks import FLOATING, check_tensor
from pipeline_kernels.message.gated import cpu, reference
from pipeline_kernels.message.gated.route import (
    N_TABLES,
    Arguments,
    Inputs,
    Route,
    count_kept,
    decode,
    make_kept,
)
from pipeline_kernels.operators import define_derivative, define_operator, differentiate_reference

MODULE: Final = "pipeline_kernels.message.gated.cuda"
TRITON_DEVICES: Final = {"cuda"}
"""Devices whose kernels read tables and factors in their own dtype, and map no features."""
MAX_KEPT: Final = 2**24
"""Bytes of values that a call may keep for its derivative: enough for a small structure. A larger
one takes memory that it needs elsewhere for a quarter of the time."""


def gated_messages(
    tables: Sequence[Tensor],
    route: Route,
    gain: Tensor,
    shift: Tensor,
    hidden: tuple[Tensor, Tensor] | None = None,
    factors: Tensor | None = None,
    projection: Tensor | None = None,
) -> Tensor:
    """Compute messages and add them up by target; the package has the formula.

    Differentiable any number of times. Fast are the values, the first derivatives, and the
    derivatives of those by tables and factors, as training by forces needs them; what goes beyond
    is plain PyTorch.

    Args:
        tables: Three of (n_t, 2 H): core and gate side by side; one of them holds the bias.
        route: Rows of the tables that a message reads, row that it is added to.
        gain: (2, 1, D) of the layer normalisation.
        shift: (2, 1, D) of the layer normalisation.
        hidden: Weight (2, H, D) and bias (2, 1, D) of the second linear layer, centred over D;
            without it H = D, and the sum of the tables must be centred over each half.
        factors: (n_factors, D), of which `route.factors` takes one row a message, or None.
        projection: (2, K, H) if the last table has features (n_2, K), of which it makes core and
            gate; without a hidden layer centred over H.

    Returns:
        (n_targets, D), or (n_messages, D) without targets, in the widest type of the arguments, at
        least float32.

    Raises:
        ValueError: The arguments do not fit together.
    """
    inputs = Inputs(tables, factors, projection, gain, shift, *(hidden or ()))
    _check(inputs, route)
    if projection is not None and (gain.device.type in TRITON_DEVICES or not projection.numel()):
        # Where no implementation keeps the product in a cache.
        *first, features = tables
        dtype = torch.promote_types(features.dtype, projection.dtype)
        maps = projection.transpose(0, 1).flatten(1).to(dtype)
        tables = [*first, features.to(dtype) @ maps]
        return gated_messages(tables, route, gain, shift, hidden, factors)
    dtype = torch.float32
    for tensor in inputs.tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    parameters = [x.to(dtype) for x in inputs.parameters]
    projection = None if projection is None else parameters.pop(0)
    if gain.device.type not in TRITON_DEVICES:
        factors = None if factors is None else factors.to(dtype)
        tables = [x.to(dtype) for x in tables]
    keep = _is_worth_keeping(inputs, route)
    sums, _ = _messages(keep, tables, factors, projection, parameters, *route.encode())
    return sums


def compute_messages(inputs: Inputs, route: Route) -> tuple[Tensor, Tensor | None]:
    """Compute `gated_messages` with constant weights, outside autograd.

    Args:
        inputs: All of one type.
        route: As there.

    Returns:
        The sums, (n_targets, D), and what `differentiate_messages` takes of small systems.
    """
    _check(inputs, route)
    keep = route.n_messages * count_kept(inputs) * inputs.gain.element_size() <= MAX_KEPT
    sums, kept = _messages(keep, *_encode(inputs, route))
    return sums, kept if keep else None


def differentiate_messages(
    g: Tensor, inputs: Inputs, route: Route, kept: Tensor | None
) -> list[Tensor]:
    """Take a derivative by the sums back; autograd does not see it.

    Args:
        g: (n_targets, D).
        inputs: As for `compute_messages`.
        route: As there.
        kept: Values kept by `compute_messages`.

    Returns:
        Derivatives by the tables and, if there are any, by the factors.
    """
    return _gradient(g, False, kept, *_encode(inputs, route))


def _encode(inputs: Inputs, route: Route) -> Arguments:
    parameters = [x for x in inputs[3:] if x is not None]
    data = inputs.tables, inputs.factors, inputs.projection
    return *data, parameters, *route.encode()


def _is_worth_keeping(inputs: Inputs, route: Route) -> bool:
    """True if a derivative by tables alone may follow, as for forces of one structure."""
    if inputs.gain.device.type in TRITON_DEVICES or not torch.is_grad_enabled():
        return False
    if any(x.requires_grad for x in inputs.parameters):
        return False
    n_bytes = route.n_messages * count_kept(inputs) * inputs.gain.element_size()
    return n_bytes <= MAX_KEPT and any(x.requires_grad for x in inputs.data)


def _check(inputs: Inputs, route: Route) -> None:
    if len(inputs.tables) != N_TABLES:
        raise ValueError(f"tables: expected {N_TABLES}, got {len(inputs.tables)}")
    if (inputs.factors is None) != (route.factors is None):
        raise ValueError("factors: expected a tensor and a plan in the route, or neither")
    width, kinds = inputs.gain.shape[-1], (FLOATING, inputs.gain.device)
    n_hidden = width if inputs.weight is None else inputs.weight.shape[1]
    widths = [2 * n_hidden] * N_TABLES
    if inputs.projection is not None:
        widths[-1] = inputs.tables[-1].shape[-1]
        check_tensor("projection", inputs.projection, (2, widths[-1], n_hidden), *kinds)
    for t, (table, columns) in enumerate(zip(inputs.tables, widths, strict=True)):
        check_tensor(f"tables[{t}]", table, (_count_rows(route, t), columns), *kinds)
    if inputs.factors is not None:
        check_tensor("factors", inputs.factors, (_count_rows(route, N_TABLES), width), *kinds)
    check_tensor("gain", inputs.gain, (2, 1, width), *kinds)
    check_tensor("shift", inputs.shift, (2, 1, width), *kinds)
    if inputs.weight is not None and inputs.bias is not None:
        check_tensor("weight", inputs.weight, (2, n_hidden, width), *kinds)
        check_tensor("bias", inputs.bias, (2, 1, width), *kinds)


def _count_rows(route: Route, place: int) -> int:
    plan = route.plans[place]
    return route.n_messages if plan is None else plan.n_segments


def _shape_messages(keep: bool, *arguments: *Arguments) -> tuple[Tensor, Tensor]:
    inputs, route = decode(*arguments)
    sums = inputs.gain.new_empty(route.n_targets, inputs.gain.shape[2])
    return sums, make_kept(keep, inputs, route)


@define_operator(
    "gated_messages",
    cpu=cpu.values,
    cuda=f"{MODULE}:values",
    fake=_shape_messages,
)
def _messages(keep: bool, *arguments: *Arguments) -> tuple[Tensor, Tensor]:
    """Return the sums, and intermediate results that an implementation keeps for `_gradient`."""
    inputs, route = decode(*arguments)
    return reference.values(inputs, route), make_kept(keep, inputs, route)


def _shape_gradient(
    g: Tensor, with_parameters: bool, kept: Tensor | None, *arguments: *Arguments
) -> list[Tensor]:
    inputs, _ = decode(*arguments)
    return [x.new_empty(x.shape) for x in (inputs.tensors if with_parameters else inputs.data)]


@define_operator(
    "gated_messages_gradient",
    cpu=cpu.gradient,
    cuda=f"{MODULE}:gradient",
    fake=_shape_gradient,
)
def _gradient(
    g: Tensor, with_parameters: bool, kept: Tensor | None, *arguments: *Arguments
) -> list[Tensor]:
    """Return derivatives by tables, factors and, if wanted, parameters."""
    derivative = reference.gradient(g, *decode(*arguments))
    return derivative.tensors if with_parameters else derivative.data


def _shape_second(_: Sequence[Tensor], g: Tensor, *arguments: *Arguments) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (g, *decode(*arguments)[0].tensors)]


@define_operator(
    "gated_messages_second",
    cpu=cpu.second,
    cuda=f"{MODULE}:second",
    fake=_shape_second,
)
def _second(directions: Sequence[Tensor], g: Tensor, *arguments: *Arguments) -> list[Tensor]:
    """Return derivatives by g, tables, factors and parameters."""
    by_g, derivative = reference.second(directions, g, *decode(*arguments))
    return [by_g, *derivative.tensors]


def _messages_backward(
    ctx: Any, saved: Sequence[Any], g: Tensor | None, _by_kept: None
) -> tuple[Any, ...]:
    if g is None:
        return (None,) * 5
    keep, *arguments, kept = saved
    inputs, _ = decode(*arguments)
    _, _, _, by_projection, by_parameters, *_ = ctx.needs_input_grad
    wanted = by_projection or any(by_parameters)
    derivatives = _gradient(g, wanted, kept if keep else None, *arguments)
    return None, *_arrange(derivatives, inputs)


def _gradient_backward(
    ctx: Any, saved: Sequence[Any], directions: Sequence[Tensor | None]
) -> tuple[Any, ...]:
    g, with_parameters, _, *arguments = saved
    inputs, route = decode(*arguments)
    by_parameters = directions[len(inputs.data) :]
    if not torch.is_grad_enabled() and all(direction is None for direction in by_parameters):
        pairs = zip(inputs.data, directions, strict=False)
        changes = [torch.zeros_like(x) if change is None else change for x, change in pairs]
        by_g, *derivatives = _second(changes, g, *arguments)
        return by_g, None, None, *_arrange(derivatives, inputs)

    def differentiate(g: Tensor, *tensors: Tensor) -> list[Tensor]:
        derivative = reference.gradient(g, inputs.replace_tensors(tensors).widen(), route)
        wide = derivative.tensors if with_parameters else derivative.data
        return inputs.restore_types(wide)

    tensors = inputs.tensors
    outputs = tensors if with_parameters else inputs.data
    grads = [
        torch.zeros_like(x) if change is None else change
        for x, change in zip(outputs, directions, strict=True)
    ]
    needed = [x.requires_grad for x in (g, *tensors)]
    again = differentiate_reference(differentiate, [g, *tensors], needed, grads)
    return again[0], None, None, *_arrange(again[1:], inputs)


def _arrange(
    derivatives: Sequence[Tensor | None], inputs: Inputs
) -> tuple[list[Tensor | None], Tensor | None, Tensor | None, list[Tensor | None]]:
    """Split derivatives as operators take the tensors; those by parameters may be missing."""
    n_data = len(inputs.data)
    by_factors = None if inputs.factors is None else derivatives[N_TABLES]
    by_parameters = list(derivatives[n_data:]) or [None] * len(inputs.parameters)
    by_projection = None if inputs.projection is None else by_parameters.pop(0)
    return list(derivatives[:N_TABLES]), by_factors, by_projection, by_parameters


define_derivative(
    _messages, _messages_backward, keep_outputs=[1], constant_outputs=[1], materialize=False
)
define_derivative(_gradient, _gradient_backward, materialize=False)
