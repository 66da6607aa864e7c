"""The contraction of a tree as `torch.library` operators: devices, shapes, derivatives, checks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.tree import cpu, reference
from pipeline_kernels.tree.shape import TreeShape

DTYPES = (torch.float32, torch.float64)


def contract(features: Tensor, transfers: Tensor, shape: TreeShape) -> Tensor:
    """Evaluates a function in hierarchical Tucker form at many points.

    Differentiable any number of times by features and transfers.

    | symbol   | argument                                                      |
    |----------|---------------------------------------------------------------|
    | `u_t[i]` | `features[i]`, the rows of leaf t, see `TreeShape`            |
    | `B_t`    | `transfers`, flattened                                        |
    | `f`      | the result                                                    |

    Args:
        features: functions of all leaves at each point, `(n_features, n)`, float32 or float64.
        transfers: transfer tensors of all nodes, `(n_transfers,)`, of the same type.
        shape: the tree.

    Returns:
        The value at each point, `(n,)`.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(features, transfers, shape)
    value: Tensor = _contract(features, transfers, shape.encoded())[0]
    return value


class Linear:
    """The values of a tree and their first derivatives by the transfers, to be applied many times.

    Args:
        features: as for `contract`.
        transfers: as for `contract`, where the tree is differentiated.
        shape: the tree.

    Attributes:
        value: value at each point, `(n,)`.

    Raises:
        ValueError: if the arguments do not fit together.
    """

    def __init__(self, features: Tensor, transfers: Tensor, shape: TreeShape) -> None:
        _check(features, transfers, shape)
        self._features, self._transfers = features.detach(), transfers.detach()
        self._shape, self._code = shape, shape.encoded()
        self.value: Tensor
        self.value, self._inner = _contract(self._features, self._transfers, self._code)

    def tangent(self, direction: Tensor) -> Tensor:
        """Returns the Jacobian times a change `(n_transfers,)` of the transfers, `(n,)`.

        Raises:
            ValueError: if the direction does not fit.
        """
        _check(self._features, direction, self._shape)
        direction = direction.detach()
        found: Tensor = _tangent(
            self._features, self._transfers, self._inner, direction, self._code
        )
        return found

    def gradient(self, weights: Tensor) -> Tensor:
        """Returns weights `(n,)` of the values times the Jacobian, `(n_transfers,)`."""
        weights = weights.detach()
        found: Tensor = _gradient(
            self._features, self._transfers, self._inner, weights, self._code, False
        )[1]
        return found


def jacobian(features: Tensor, transfers: Tensor, shape: TreeShape) -> Tensor:
    """Differentiates each value by each transfer.

    Args:
        features: as for `contract`.
        transfers: as for `contract`.
        shape: the tree.

    Returns:
        Derivatives `(n, n_transfers)`; no gradient is recorded.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(features, transfers, shape)
    with torch.no_grad():
        _, inner = _contract(features, transfers, shape.encoded())
        return reference.jacobian(features, transfers, inner, shape)


def _check(features: Tensor, transfers: Tensor, shape: TreeShape) -> None:
    if features.dtype not in DTYPES or transfers.dtype != features.dtype:
        raise ValueError(
            f"features, transfers: expected one dtype of {DTYPES}, got {features.dtype} and "
            f"{transfers.dtype}"
        )
    if features.ndim != 2 or features.shape[0] != shape.n_features:
        raise ValueError(
            f"features: expected ({shape.n_features}, n) for leaf ranks {shape.leaf_ranks}, got "
            f"{tuple(features.shape)}"
        )
    if transfers.shape != (shape.n_transfers,):
        raise ValueError(
            f"transfers: expected ({shape.n_transfers},) for the tensors {shape.tensor_shapes}, "
            f"got {tuple(transfers.shape)}"
        )
    if transfers.device != features.device:
        raise ValueError(
            f"transfers: expected device {features.device} of the features, got {transfers.device}"
        )


@torch.library.custom_op("pipeline_kernels::tree_contract", mutates_args=())
def _contract(features: Tensor, transfers: Tensor, code: Sequence[int]) -> tuple[Tensor, Tensor]:
    root, inner = reference.contract(features, transfers, TreeShape.decoded(code))
    return root.clone(), inner


@_contract.register_kernel("cpu")
def _contract_cpu(features, transfers, code):
    return cpu.contract(features, transfers, code)


@_contract.register_kernel("cuda")
def _contract_cuda(features, transfers, code):
    from pipeline_kernels.tree import cuda

    return cuda.contract(features, transfers, code)


@_contract.register_fake
def _contract_shape(features, transfers, code):
    shape, n = TreeShape.decoded(code), features.shape[1]
    return features.new_empty(n), features.new_empty(shape.n_inner, n)


@torch.library.custom_op("pipeline_kernels::tree_gradient", mutates_args=())
def _gradient(
    features: Tensor,
    transfers: Tensor,
    inner: Tensor,
    weights: Tensor,
    code: Sequence[int],
    by_features: bool,
) -> tuple[Tensor, Tensor]:
    shape = TreeShape.decoded(code)
    grads, by_tensor = reference.gradient(features, transfers, inner, weights, shape)
    return grads if by_features else features.new_empty(0), by_tensor


@_gradient.register_kernel("cpu")
def _gradient_cpu(features, transfers, inner, weights, code, by_features):
    return cpu.gradient(features, transfers, inner, weights, code, by_features)


@_gradient.register_kernel("cuda")
def _gradient_cuda(features, transfers, inner, weights, code, by_features):
    from pipeline_kernels.tree import cuda

    return cuda.gradient(features, transfers, inner, weights, code, by_features)


@_gradient.register_fake
def _gradient_shape(features, transfers, inner, weights, code, by_features):
    grads = features.new_empty(features.shape) if by_features else features.new_empty(0)
    return grads, transfers.new_empty(transfers.shape)


@torch.library.custom_op("pipeline_kernels::tree_tangent", mutates_args=())
def _tangent(
    features: Tensor, transfers: Tensor, inner: Tensor, direction: Tensor, code: Sequence[int]
) -> Tensor:
    shape = TreeShape.decoded(code)
    return reference.tangent(features, transfers, inner, direction, shape)


@_tangent.register_kernel("cpu")
def _tangent_cpu(features, transfers, inner, direction, code):
    return cpu.tangent(features, transfers, inner, direction, code)


@_tangent.register_fake
def _tangent_shape(features, transfers, inner, direction, code):
    return features.new_empty(features.shape[1])


def _save_contract(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    features, transfers, ctx.code = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(features, transfers, output[1])


def _contract_backward(
    ctx: Any, weights: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    if weights is None:
        return None, None, None
    features, transfers, inner = ctx.saved_tensors
    by_features, by_transfers = ctx.needs_input_grad[:2]
    grads, by_tensor = _gradient(features, transfers, inner, weights, ctx.code, by_features)
    return grads if by_features else None, by_tensor if by_transfers else None, None


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    features, transfers, _, weights, ctx.code, ctx.by_features = inputs
    ctx.save_for_backward(features, transfers, weights)


def _gradient_backward(
    ctx: Any, d_features: Tensor, d_transfers: Tensor
) -> tuple[Tensor | None, ...]:
    """Differentiates the first derivatives, in plain PyTorch: any higher order follows from it.

    Gradients g_features and g_transfers of sum_n w_n f_n enter further results by
    <g_features, d_features> + <g_transfers, d_transfers> = sum_n w_n (df_n along d): the tangent.
    """
    shape, again = TreeShape.decoded(ctx.code), torch.is_grad_enabled()
    needed = [ctx.needs_input_grad[i] for i in (0, 1, 3)]
    with torch.enable_grad():
        # Views, so that a path from one argument to another outside of here does not count.
        features, transfers, weights = (
            t.view_as(t) if again else t.detach().requires_grad_(need)
            for t, need in zip(ctx.saved_tensors, needed, strict=True)
        )
        _, inner = reference.contract(features, transfers, shape)
        along = d_features if ctx.by_features else None
        change = reference.tangent(features, transfers, inner, d_transfers, shape, along)
        total = (weights * change).sum()
    arguments = (features, transfers, weights)
    wanted = [t for t, need in zip(arguments, needed, strict=True) if need]
    found = iter(torch.autograd.grad(total, wanted, create_graph=again, materialize_grads=True))
    by_features, by_transfers, by_weights = (next(found) if need else None for need in needed)
    return by_features, by_transfers, None, by_weights, None, None


_contract.register_autograd(_contract_backward, setup_context=_save_contract)
_gradient.register_autograd(_gradient_backward, setup_context=_save_gradient)
