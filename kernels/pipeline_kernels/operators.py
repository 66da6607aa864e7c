"""Operators of torch, each from one declaration.

@define_operator("scale", cpu=cpu.scale, cuda="pipeline_kernels.x.cuda:scale", fake=_shape)
def _scale(x: Tensor, factor: Tensor) -> Tensor:
    return reference.scale(x, factor)  # what runs where nothing faster does

def _scale_backward(ctx: Any, saved: Sequence[Any], grad: Tensor) -> tuple[Tensor | None, ...]:
    x, factor = saved
    return _scale(grad, factor), _scale_by_factor(x, grad)

define_derivative(_scale, _scale_backward)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, Protocol, TypeVar, cast, get_args

import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.cache import protect_triton
from pipeline_kernels.eager import EagerOperator, is_tensor_list

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Operator(Protocol[P, R_co]):
    """An operator: called as the function that defines it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it."""
        ...


def define_operator(
    name: str,
    *,
    fake: Callable[..., Any],
    cpu: Callable[..., Any] | None = None,
    cuda: str | None = None,
) -> Callable[[Callable[P, R]], Operator[P, R]]:
    """Make an operator of the decorated function, which is its reference.

    The reference runs on devices without an implementation of their own, and on the CPU where the
    one for it needs C that cannot be had. Arguments that several operators have may be declared
    together, last: `*batch: *Batch` with a type `Batch = tuple[...]`.

    Args:
        name: of the operator, after `pipeline_kernels::`.
        fake: returns empty tensors of the shapes and types of the results.
        cpu: implementation on the CPU, with the arguments of the reference.
        cuda: module and function on NVIDIA GPUs, `"pipeline_kernels.x.cuda:function"`, imported
            when the first of its tensors arrives.

    Returns:
        The decorator.
    """

    def decorate(function: Callable[P, R]) -> Operator[P, R]:
        reference = _lay_out(function)
        operator = EagerOperator(name, reference)
        operator.register_fake(fake)
        if cpu is not None:
            operator.implement("cpu", native.fall_back(cpu, reference))
        if cuda is not None:
            operator.implement("cuda", _import_late(cuda))
        return cast("Operator[P, R]", operator)

    return decorate


def _lay_out(reference: Callable[P, R]) -> Callable[P, R]:
    """Make results contiguous, as `fake` promises."""

    @wraps(reference)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        result: Any = reference(*args, **kwargs)
        if isinstance(result, tuple):
            return cast("R", tuple(x.contiguous() for x in result))
        return cast("R", result.contiguous() if isinstance(result, Tensor) else result)

    cast("Any", run).__signature__ = _write_out(signature(reference))
    return run


def _write_out(declared: Signature) -> Signature:
    """Give each of `*batch: *Batch` a parameter: the schema of an operator has no others."""
    parameters = []
    for x in declared.parameters.values():
        types = get_args(x.annotation) if x.kind is x.VAR_POSITIONAL else ()
        parameters += [
            Parameter(f"{x.name}_{i}", x.POSITIONAL_OR_KEYWORD, annotation=kind)
            for i, kind in enumerate(types)
        ] or [x]
    return declared.replace(parameters=parameters)


def _import_late(target: str) -> Callable[..., Any]:
    module, _, function = target.partition(":")

    def run(*args: Any) -> Any:
        protect_triton()
        return getattr(import_module(module), function)(*args)

    return run


def define_derivative(
    operator: Operator[P, Any],
    backward: Callable[..., tuple[Any, ...]],
    *,
    drop: Sequence[int] = (),
    keep_outputs: Sequence[int] = (),
    constant_outputs: Sequence[int] = (),
    materialize: bool = True,
) -> None:
    """Give an operator its derivative.

    Args:
        operator: from `define_operator`.
        backward: called as `backward(ctx, saved, *grads)` with the gradients by the outputs;
            `saved` are the arguments, then the outputs to keep. Returns the gradients by the first
            arguments; those after them have none.
        drop: places of arguments that are not kept, since the derivative does not need them; None
            stands for them in `saved`.
        keep_outputs: places of the outputs to keep.
        constant_outputs: places of the outputs without a derivative.
        materialize: whether `grads` has zeros, rather than None, for outputs that do not matter.
    """

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.mark_non_differentiable(*(outputs[i] for i in constant_outputs))
        ctx.set_materialize_grads(materialize)
        ctx.lengths = [len(x) if is_tensor_list(x) else None for x in inputs]
        kept = [None if i in drop else x for i, x in enumerate(inputs)]
        _keep(ctx, [*kept, *(outputs[i] for i in keep_outputs)])

    def differentiate(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        first = backward(ctx, _recall(ctx), *grads)
        others = ctx.lengths[len(first) :]
        return *first, *(None if n is None else [None] * n for n in others)

    cast("EagerOperator", operator).differentiate(save, differentiate)


def _keep(ctx: Any, items: Sequence[Any]) -> None:
    """Keep items for `_recall`; autograd watches over tensors and lists of them."""
    tensors: list[Tensor] = []
    ctx.items = []
    for x in items:
        group = [x] if isinstance(x, Tensor) else x if is_tensor_list(x) else None
        if group is None:
            ctx.items.append(x)
            continue
        first, last = len(tensors), len(tensors) + len(group)
        ctx.items.append(_Place(first) if group is not x else _Place(slice(first, last)))
        tensors += group
    ctx.save_for_backward(*tensors)


def _recall(ctx: Any) -> list[Any]:
    tensors = list(ctx.saved_tensors)
    return [tensors[x.place] if isinstance(x, _Place) else x for x in ctx.items]


@dataclass(frozen=True)
class _Place:
    """Stands for a tensor or a list of tensors that autograd keeps."""

    place: int | slice


def differentiate_reference(
    function: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Sequence[Tensor],
    needed: Sequence[bool],
    grads: Sequence[Tensor] | None = None,
) -> tuple[Tensor | None, ...]:
    """Differentiate plain PyTorch, for derivatives of an order that no kernel has.

    Args:
        function: takes the inputs and returns one tensor or several.
        inputs: where it is differentiated.
        needed: by which of them.
        grads: gradients by its results; not for one number.

    Returns:
        Gradients by the inputs, None where not needed; differentiable if gradients are recorded.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that a path from one argument to another outside of here does not count.
        inputs = [
            x.view_as(x) if again else x.detach().requires_grad_(need)
            for x, need in zip(inputs, needed, strict=True)
        ]
        outputs = function(*inputs)
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    sources = [x for x, need in zip(inputs, needed, strict=True) if need]
    gradients = iter(
        torch.autograd.grad(outputs, sources, grads, create_graph=again, materialize_grads=True)
    )
    return tuple(next(gradients) if need else None for need in needed)
