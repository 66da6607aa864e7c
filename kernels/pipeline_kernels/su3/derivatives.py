"""Operators with their derivatives: the first by a routine, all others by plain PyTorch."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

from torch import Tensor

from pipeline_kernels.operators import (
    Operator,
    define_derivative,
    define_operator,
    differentiate_reference,
)

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Tensors = TypeVar("Tensors", bound=Tensor | tuple[Tensor, ...])


def define_with_gradient(
    value: Callable[P, R],
    gradient: Callable[Q, Tensors],
    cpu: ModuleType,
    *,
    fake: Callable[..., Any],
    n_inputs: int = 1,
    keep_result: bool = False,
) -> tuple[Operator[P, R], Operator[Q, Tensors]]:
    """Make operators of a function and of its derivative.

    Args:
        value: of `reference.py`; `cpu.py` and `cuda.py` have another of its name.
        gradient: the same for the derivatives by the inputs. It takes the inputs, the result if it
            is kept, the derivatives by all results, and what else `value` takes.
        cpu: the module `cpu.py`.
        fake: returns empty tensors of the shapes and types of the results of `value`.
        n_inputs: by how many arguments, the first ones, it is differentiated.
        keep_result: whether `gradient` takes the first result.

    Returns:
        Both operators, the first differentiable any number of times.
    """

    def define(function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
        name, package = function.__name__, function.__module__.rpartition(".")[0]
        routine, cuda = getattr(cpu, name), f"{package}.cuda:{name}"
        return define_operator(f"su3_{name}", fake=fake, cpu=routine, cuda=cuda)(function)

    def make_gradient(*arguments: Any) -> Tensor | tuple[Tensor, ...]:
        made = tuple(x.new_empty(x.shape) for x in arguments[:n_inputs])
        return made if n_inputs > 1 else made[0]

    def backward(ctx: Any, saved: Sequence[Any], *by_results: Tensor) -> tuple[Tensor, ...]:
        last = len(saved) - keep_result
        inputs, others, results = saved[:n_inputs], saved[n_inputs:last], saved[last:]
        made = first(*inputs, *results, *by_results, *others)
        return made if n_inputs > 1 else (made,)

    def backward_again(
        ctx: Any, saved: Sequence[Any], *by_results: Tensor
    ) -> tuple[Tensor | None, ...]:
        tensors = [x for x in saved if isinstance(x, Tensor)]
        others = saved[len(tensors) :]
        plain = cast("Callable[..., Tensor | tuple[Tensor, ...]]", gradient)
        return differentiate_reference(
            lambda *inputs: plain(*inputs, *others),
            tensors,
            ctx.needs_input_grad[: len(tensors)],
            by_results,
        )

    operator, first = define(value, fake), define(gradient, make_gradient)
    define_derivative(operator, backward, keep_outputs=[0] if keep_result else [])
    define_derivative(first, backward_again)
    return operator, first
