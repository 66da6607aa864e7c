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
from pipeline_kernels.su3 import lanes

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Tensors = TypeVar("Tensors", bound=Tensor | tuple[Tensor, ...])


def define_with_gradient(
    value: Callable[P, R],
    gradient: Callable[Q, Tensors],
    *,
    fake: Callable[..., Any],
    cpu: ModuleType | None = None,
    count: Callable[..., int] | None = None,
    n_inputs: int = 1,
    keep_result: bool = False,
) -> tuple[Operator[P, R], Operator[Q, Tensors]]:
    """Make operators of a function and of its derivative.

    Args:
        value: function of `reference.py`; `cuda.py`, and `cpu.py` or `native.c`, name theirs alike.
        gradient: the same for the derivatives by the inputs. It takes the inputs, the result if it
            is kept, the derivatives by all results, and the other arguments of `value`.
        fake: returns empty tensors of the shapes and types of the results of `value`.
        cpu: the module `cpu.py`. Without it matrices are independent, and routines in C take the
            tensors, the results, which they fill, `count`, and the other arguments.
        count: returns a size that C routines need besides the number of matrices.
        n_inputs: by how many arguments, the first ones, it is differentiated.
        keep_result: whether `gradient` takes the first result.

    Returns:
        Both operators, the first differentiable any number of times.
    """

    def define(function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
        name, package = function.__name__, function.__module__.rpartition(".")[0]
        routine = getattr(cpu, name) if cpu else _make_routine(function, fake, count)
        cuda = f"{package}.cuda:{name}"
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


def _make_routine(
    function: Callable[..., Any], fake: Callable[..., Any], count: Callable[..., int] | None
) -> Callable[..., Any]:
    """Return the routine in C of a function of independent matrices, with its arguments."""
    family, name = function.__module__.split(".")[-2], function.__name__

    def run(*arguments: Any) -> Any:
        results = fake(*arguments)
        filled = results if isinstance(results, tuple) else (results,)
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        sizes = [] if count is None else [count(*arguments)]
        numbers = *sizes, *arguments[len(tensors) :]
        lanes.run_matrices(family, name, [*tensors, *filled], *numbers)
        return results

    return run
