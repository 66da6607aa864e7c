"""The contraction of a tree in plain PyTorch, the oracle of the fast implementations.

Products of matrices: `einsum` of three operands takes longer to choose an order than to multiply.
"""

import torch
from torch import Tensor

from pipeline_kernels.tree.shape import TreeShape


def contract(features: Tensor, transfers: Tensor, shape: TreeShape) -> tuple[Tensor, Tensor]:
    """Return the values of the root `(n,)` and of all other interior nodes `(n_inner, n)`."""
    slots = list(features.split(list(shape.leaf_ranks)))
    for node, B in zip(shape.nodes, shape.split_transfers(transfers), strict=True):
        slots.append(_combine(slots[node.left], slots[node.right], B))
    *inner, root = slots[shape.n_leaves :]
    return root[0], torch.cat(inner) if inner else features.new_empty(0, features.shape[1])


def gradient(
    features: Tensor, transfers: Tensor, inner: Tensor, weights: Tensor, shape: TreeShape
) -> tuple[Tensor, Tensor]:
    """Return the derivatives of `sum_n weights[n] * root[n]` by features and by transfers.

    `inner` is what `contract` returned.
    """
    slots = [*features.split(list(shape.leaf_ranks)), *_split_inner(inner, shape)]
    tensors = shape.split_transfers(transfers)
    grads: list[Tensor] = [weights[None]] * (2 * shape.n_leaves - 1)
    by_tensor: list[Tensor] = []
    for i in reversed(range(len(shape.nodes))):
        node, B = shape.nodes[i], tensors[i]
        left, right, g = slots[node.left], slots[node.right], grads[shape.n_leaves + i]
        by_tensor.append((_multiply_pairs(left, right) @ g.T).flatten())
        grads[node.left], grads[node.right] = _split_gradient(left, right, B, g)
    return torch.cat(grads[: shape.n_leaves]), torch.cat(by_tensor[::-1])


def tangent(
    features: Tensor,
    transfers: Tensor,
    inner: Tensor,
    d_transfers: Tensor,
    shape: TreeShape,
    d_features: Tensor | None = None,
) -> Tensor:
    """Return the derivative `(n,)` of the root along a change of the transfers and features."""
    slots = [*features.split(list(shape.leaf_ranks)), *_split_inner(inner, shape)]
    changes: list[Tensor | None] = [None] * shape.n_leaves
    if d_features is not None:
        changes = list(d_features.split(list(shape.leaf_ranks)))
    tensors = zip(shape.split_transfers(transfers), shape.split_transfers(d_transfers), strict=True)
    for node, (B, dB) in zip(shape.nodes, tensors, strict=True):
        left, right = slots[node.left], slots[node.right]
        change = _combine(left, right, dB)
        if (d_left := changes[node.left]) is not None:
            change = change + _combine(d_left, right, B)
        if (d_right := changes[node.right]) is not None:
            change = change + _combine(left, d_right, B)
        changes.append(change)
    root = changes[-1]
    assert root is not None
    return root[0]


def jacobian(features: Tensor, transfers: Tensor, inner: Tensor, shape: TreeShape) -> Tensor:
    """Return the derivative of each value of the root by each transfer, `(n, n_transfers)`."""
    slots = [*features.split(list(shape.leaf_ranks)), *_split_inner(inner, shape)]
    tensors = shape.split_transfers(transfers)
    ones = features.new_ones(1, features.shape[1])
    grads = [ones] * (2 * shape.n_leaves - 1)
    derivatives = features.new_empty(features.shape[1], shape.n_transfers)
    for i in reversed(range(len(shape.nodes))):
        node, B = shape.nodes[i], tensors[i]
        left, right, g = slots[node.left], slots[node.right], grads[shape.n_leaves + i]
        part = _multiply_pairs(_multiply_pairs(left, right), g).T
        derivatives[:, shape.offsets[i] : shape.offsets[i + 1]] = part
        grads[node.left], grads[node.right] = _split_gradient(left, right, B, g)
    return derivatives


def _combine(left: Tensor, right: Tensor, B: Tensor) -> Tensor:
    """Return `u[k, n] = sum_ij left[i, n] right[j, n] B[i, j, k]`."""
    return B.flatten(0, 1).T @ _multiply_pairs(left, right)


def _split_gradient(left: Tensor, right: Tensor, B: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return derivatives of `sum_kn g[k, n] u[k, n]` of a node by left and right."""
    above = (B.flatten(0, 1) @ g).unflatten(0, B.shape[:2])  # (i, j, n)
    return (above * right).sum(1), (above * left[:, None]).sum(0)


def _multiply_pairs(left: Tensor, right: Tensor) -> Tensor:
    """Return the products of each row of left with each of right, `(n_left * n_right, n)`."""
    return (left[:, None] * right).flatten(0, 1)


def _split_inner(inner: Tensor, shape: TreeShape) -> list[Tensor]:
    return list(inner.split([node.rank for node in shape.nodes[:-1]]))
