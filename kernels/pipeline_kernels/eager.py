"""Direct calls of operators that bypass torch's dispatcher, which takes longer than many kernels.

A Python operator passes through several Python layers of the dispatcher: 0.1 to 0.3 ms with
lists of tensors. Compilers, tracers and transforms still see the operator: only a call with
plain tensors that nothing observes goes straight to the implementation for their device, with the
derivative that the operator has.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch._library.custom_ops import CustomOpDef
from torch.library import Library, infer_schema

# Not `register_kernel`, whose first call imports torch.compile: seconds of each process.
_LIBRARY = Library("pipeline_kernels", "FRAGMENT")

Backward = Callable[..., tuple[Any, ...]]
"""Takes a context, and the gradients by the outputs; returns those by the first arguments."""


class EagerOperator(CustomOpDef):
    """Operator of torch, called directly where the dispatcher makes no difference.

    Args:
        name: In the namespace `pipeline_kernels`.
        function: Runs on devices without an implementation of their own.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(
            "pipeline_kernels", name, infer_schema(function, mutates_args=()), function
        )
        self.register_kernel(None)(function)
        self.label = f"pipeline_kernels::{name}"
        self.implementations: dict[str, Callable[..., Any]] = dict.fromkeys(
            ("cpu", "cuda"), function
        )
        self.derivative: tuple[Callable[..., None], Backward] | None = None

    def implement(self, device: str, function: Callable[..., Any]) -> None:
        """Give the operator an implementation for a type of device."""
        _LIBRARY.impl(self._name, function, device.upper())
        self.implementations[device] = function

    def differentiate(self, save: Callable[..., None], backward: Backward) -> None:
        """Give the operator its derivative, as `torch.library.register_autograd` takes it."""
        self.register_autograd(backward, setup_context=save)
        self.derivative = save, backward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute, by the dispatcher if anything but the numbers matters."""
        tensors = [*_list_tensors(args)]
        if kwargs or not self._is_plain(tensors):
            return self._opoverload(*args, **kwargs)
        with _announce(self.label):
            recorded = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
            if self.derivative is None or not recorded:
                return self.run(args, tensors)
            result = _Differentiable.apply(self, args, *tensors)  # type: ignore[no-untyped-call]
        returns_list = isinstance(result, tuple) and len(self._opoverload._schema.returns) == 1
        return list(result) if returns_list else result

    def run(self, args: Sequence[Any], tensors: Sequence[Tensor]) -> Any:
        """Run the implementation for the device of the tensors."""
        return self.implementations[tensors[0].device.type](*args)

    def _is_plain(self, tensors: Sequence[Tensor]) -> bool:
        if not tensors or torch.compiler.is_compiling() or _is_transformed():
            return False
        device = tensors[0].device
        return device.type in self.implementations and all(
            type(x) in (Tensor, nn.Parameter) and x.device == device for x in tensors
        )


class _Differentiable(torch.autograd.Function):
    """An operator with its derivative, called past the dispatcher."""

    @staticmethod
    def forward(ctx: Any, operator: EagerOperator, args: Sequence[Any], *tensors: Tensor) -> Any:
        assert operator.derivative is not None
        output = operator.run(args, tensors)
        save, ctx.backward = operator.derivative
        ctx.counts = [len(x) if is_tensor_list(x) else None for x in args]
        ctx.are_tensors = [isinstance(x, Tensor) for x in args]
        ctx.returns_list = isinstance(output, list)
        save(ctx, tuple(args), output)
        return tuple(output) if ctx.returns_list else output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        view = _Context(ctx)
        by_args = ctx.backward(view, *([[*grads]] if ctx.returns_list else grads))
        flat: list[Tensor | None] = []
        for grad, count, is_tensor in zip(by_args, ctx.counts, ctx.are_tensors, strict=True):
            if count is not None:
                flat += [None] * count if grad is None else grad
            elif is_tensor:
                flat.append(grad)
        return None, None, *flat


def list_wanted(ctx: Any) -> list[bool]:
    """Return True for each tensor that the current backward pass differentiates by.

    Forces are derivatives by positions alone, though parameters could be differentiated by, too.
    """
    nodes = [node for node, _ in ctx.next_functions]
    if len(nodes) - nodes.count(None) == 1:  # to which it leads, or it would not run
        return [node is not None for node in nodes]
    return [node is not None and _is_visited(node) for node in nodes]


def _is_visited(node: Any) -> bool:
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # of a leaf whose gradient is returned instead of kept
        return True


@dataclass
class _Context:
    """Context of a derivative, by the arguments of the operator."""

    inner: Any

    @cached_property
    def needs_input_grad(self) -> tuple[Any, ...]:
        """Needed derivatives, evaluated on first use only."""
        needed = iter(list_wanted(self.inner))
        nested: list[Any] = []
        for count, is_tensor in zip(self.inner.counts, self.inner.are_tensors, strict=True):
            if count is not None:
                nested.append([next(needed) for _ in range(count)])
            else:
                nested.append(is_tensor and next(needed))
        return tuple(nested)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _list_tensors(args: Sequence[Any]) -> Iterator[Tensor]:
    for x in args:
        if isinstance(x, Tensor):
            yield x
        elif is_tensor_list(x):
            yield from x


def is_tensor_list(x: object) -> bool:
    """Test for a list of tensors, not an empty one."""
    return isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], Tensor)


def _is_transformed() -> bool:
    """Test for a mode, transform, tracer or forward differentiation that intercepts operators."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _announce(label: str) -> AbstractContextManager[Any]:
    """Show the call to a profiler, if one looks."""
    if torch._C._autograd._profiler_enabled():
        return torch.profiler.record_function(label)
    return nullcontext()
