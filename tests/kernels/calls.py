"""Calls of kernels in any precision and layout and on any device, and their derivatives."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline_kernels.eager import EagerOperator

COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True)
class Call:
    """A call `function(*tensors, *constants)`, and the function that gives what it should.

    Attributes:
        function: The kernel.
        reference: The formula by means of torch, or a peer.
        tensors: By which results can be differentiated.
        constants: By which they cannot, such as plans; what has `to` goes to other devices by it.
        n_twice: Of how many tensors, the first ones, first derivatives are differentiated again, as
            training by forces does; of all if not given.
    """

    function: Callable[..., Any]
    reference: Callable[..., Any]
    tensors: Sequence[Tensor]
    constants: Sequence[Any] = ()
    n_twice: int | None = None

    def to(self, target: Any) -> "Call":
        """Return the call in another precision, or on another device."""
        tensors, constants = convert(list(self.tensors), target), convert(self.constants, target)
        return replace(self, tensors=tensors, constants=constants)

    @property
    def exact(self) -> "Call":
        """The reference in double precision, on the CPU."""
        return replace(self.to("cpu").to(torch.float64), function=self.reference)

    def lay_out(self, change: Callable[[Tensor], Tensor]) -> "Call":
        """Return the call with its tensors in another layout of memory."""
        return replace(self, tensors=[change(x) for x in self.tensors])


def convert(x: Any, target: Any) -> Any:
    """Convert numbers, but no indices, to a precision; or all to a device."""
    if isinstance(x, list | tuple) and type(x) in (list, tuple):
        return type(x)(convert(part, target) for part in x)
    if not isinstance(target, torch.dtype):
        return x.to(target) if hasattr(x, "to") else x
    if isinstance(x, Tensor) and x.is_complex():
        return x.to(COMPLEX[target])
    return x.to(target) if isinstance(x, Tensor) and x.is_floating_point() else x


def transpose_memory(x: Tensor) -> Tensor:
    """Lay numbers out in reversed order of dimensions; complex ones are lazy conjugates, too."""
    turned = x.permute(*range(x.ndim)[::-1]).contiguous().permute(*range(x.ndim)[::-1])
    return turned.conj().resolve_conj().conj() if x.is_complex() else turned


def spread_memory(x: Tensor) -> Tensor:
    """Lay numbers out with others between them."""
    return torch.stack([x, -x], -1)[..., 0]


def flatten(results: Any) -> list[Tensor]:
    """List the tensors of nested results."""
    if isinstance(results, Tensor):
        return [results]
    return [x for part in results for x in flatten(part)]


def differentiate(
    call: Call, order: int, dtype: torch.dtype, lay_out: Callable[[Tensor], Tensor] | None = None
) -> list[Tensor]:
    """Return the results of a call, their derivatives, and those of these, along random ones."""
    generator = torch.Generator().manual_seed(1)

    def draw(like: Tensor) -> Tensor:
        kind = torch.complex128 if like.is_complex() else torch.float64
        numbers = torch.randn(like.shape, generator=generator, dtype=kind)
        numbers = convert(numbers, dtype).to(like)
        return (numbers if lay_out is None else lay_out(numbers)).requires_grad_()

    tensors = [x.detach().requires_grad_(order > 0) for x in call.tensors]
    values = flatten(call.function(*tensors, *call.constants))
    results = [x.detach() for x in values]
    smooth = [x for x in values if x.requires_grad]
    if order == 0 or not smooth:
        return results
    g = [draw(x) for x in smooth]
    how: dict[str, Any] = {"create_graph": order > 1, "materialize_grads": True}
    if call.n_twice is not None:
        first = torch.autograd.grad(smooth, tensors, g, retain_graph=True, materialize_grads=True)
        results += [x.detach() for x in first]
    first = torch.autograd.grad(smooth, tensors[: call.n_twice], g, **how)
    if call.n_twice is None:
        results += [x.detach() for x in first]
    pairs = [(x, draw(x).detach()) for x in first]
    pairs = [(x, change) for x, change in pairs if x.requires_grad]
    if order > 1 and pairs:
        outputs, changes = zip(*pairs, strict=True)
        results += torch.autograd.grad(outputs, [*g, *tensors], changes, materialize_grads=True)
    elif order > 1:
        results += [torch.zeros_like(x) for x in (*g, *tensors)]
    return results


@contextmanager
def record_calls() -> Iterator[dict[str, tuple[EagerOperator, tuple[Any, ...]]]]:
    """Note the first call of each operator with its arguments."""
    calls: dict[str, tuple[EagerOperator, tuple[Any, ...]]] = {}
    original = EagerOperator.__call__

    def call(self: EagerOperator, *args: Any, **kwargs: Any) -> Any:
        calls.setdefault(self.label, (self, args))
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerOperator, "__call__", call)
        yield calls


def prepare_argument(x: Any, smooth: bool) -> Any:
    """Detach an argument of an operator, and make a leaf of it where there are derivatives."""
    if isinstance(x, list | tuple):
        return type(x)(prepare_argument(part, smooth) for part in x)
    if not isinstance(x, Tensor):
        return x
    numbers = x.is_floating_point() or x.is_complex()
    return x.detach().clone().requires_grad_(smooth and numbers)
