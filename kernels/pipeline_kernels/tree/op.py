"""The contraction of a tree as operators of torch: checks, shapes, devices, derivatives."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.operators import (
    define_derivative,
    define_operator,
    differentiate_reference,
)
from pipeline_kernels.tree import cpu, reference
from pipeline_kernels.tree.shape import TreeShape


def contract(features: Tensor, transfers: Tensor, shape: TreeShape) -> Tensor:
    """Evaluate a function in hierarchical Tucker form at many points.

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
    return _contract(features, transfers, shape.encode())[0]


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
        self._shape, self._code = shape, shape.encode()
        self.value, self._inner = _contract(self._features, self._transfers, self._code)

    def tangent(self, direction: Tensor) -> Tensor:
        """Return the Jacobian times a change `(n_transfers,)` of the transfers, `(n,)`.

        Raises:
            ValueError: if the direction does not fit.
        """
        _check(self._features, direction, self._shape)
        return _tangent(
            self._features, self._transfers, self._inner, direction.detach(), self._code
        )

    def gradient(self, weights: Tensor) -> Tensor:
        """Return weights `(n,)` of the values times the Jacobian, `(n_transfers,)`."""
        return _gradient(
            self._features, self._transfers, self._inner, weights.detach(), self._code, False
        )[1]


def jacobian(features: Tensor, transfers: Tensor, shape: TreeShape) -> Tensor:
    """Differentiate each value by each transfer.

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
        _, inner = _contract(features, transfers, shape.encode())
        return reference.jacobian(features, transfers, inner, shape)


def _check(features: Tensor, transfers: Tensor, shape: TreeShape) -> None:
    made = f"for leaf ranks {shape.leaf_ranks}"
    check_tensor("features", features, (shape.n_features, "n"), made=made)
    like = (features.dtype,), features.device
    check_tensor("transfers", transfers, (shape.n_transfers,), *like)


@define_operator(
    "tree_contract",
    cpu=cpu.contract,
    cuda="pipeline_kernels.tree.cuda:contract",
    fake=lambda x, B, code: (
        x.new_empty(x.shape[1]),
        x.new_empty(TreeShape.decode(code).n_inner, x.shape[1]),
    ),
)
def _contract(features: Tensor, transfers: Tensor, code: Sequence[int]) -> tuple[Tensor, Tensor]:
    root, inner = reference.contract(features, transfers, TreeShape.decode(code))
    return root.clone(), inner


@define_operator(
    "tree_gradient",
    cpu=cpu.gradient,
    cuda="pipeline_kernels.tree.cuda:gradient",
    fake=lambda x, B, inner, w, code, by_x: (
        x.new_empty(x.shape if by_x else 0),
        B.new_empty(B.shape),
    ),
)
def _gradient(
    features: Tensor,
    transfers: Tensor,
    inner: Tensor,
    weights: Tensor,
    code: Sequence[int],
    by_features: bool,
) -> tuple[Tensor, Tensor]:
    shape = TreeShape.decode(code)
    grads, by_tensor = reference.gradient(features, transfers, inner, weights, shape)
    return grads if by_features else features.new_empty(0), by_tensor


@define_operator(
    "tree_tangent", cpu=cpu.tangent, fake=lambda features, *_: features.new_empty(features.shape[1])
)
def _tangent(
    features: Tensor, transfers: Tensor, inner: Tensor, direction: Tensor, code: Sequence[int]
) -> Tensor:
    return reference.tangent(features, transfers, inner, direction, TreeShape.decode(code))


def _contract_backward(
    ctx: Any, saved: Sequence[Any], weights: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    if weights is None:
        return None, None
    features, transfers, code, inner = saved
    by_features, by_transfers = ctx.needs_input_grad[:2]
    grads, by_tensor = _gradient(features, transfers, inner, weights, code, by_features)
    return grads if by_features else None, by_tensor if by_transfers else None


def _gradient_backward(
    ctx: Any, saved: Sequence[Any], d_features: Tensor, d_transfers: Tensor
) -> tuple[Tensor | None, ...]:
    """Differentiate the first derivatives, in plain PyTorch: any higher order follows from it.

    Gradients g_features and g_transfers of sum_n w_n f_n enter further results by
    <g_features, d_features> + <g_transfers, d_transfers> = sum_n w_n (df_n along d): the tangent.
    """
    features, transfers, _, weights, code, by_features = saved
    shape, along = TreeShape.decode(code), d_features if by_features else None

    def compute_total(features: Tensor, transfers: Tensor, weights: Tensor) -> Tensor:
        _, inner = reference.contract(features, transfers, shape)
        change = reference.tangent(features, transfers, inner, d_transfers, shape, along)
        return (weights * change).sum()

    needed = [ctx.needs_input_grad[i] for i in (0, 1, 3)]
    by_x, by_B, by_weights = differentiate_reference(
        compute_total, (features, transfers, weights), needed
    )
    return by_x, by_B, None, by_weights


define_derivative(
    _contract, _contract_backward, keep_outputs=[1], constant_outputs=[1], materialize=False
)
define_derivative(_gradient, _gradient_backward, drop=[2])
