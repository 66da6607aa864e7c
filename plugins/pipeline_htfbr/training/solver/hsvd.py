"""Hierarchical singular value decomposition, from a sum of products to a tree.

The coefficients of a sum of products form a sparse tensor. For a node t
its matricisation has the indices of the coordinates below t as rows and all others as columns; the
leading left singular vectors U_t span the optimal space for t (L. Grasedyck, SIAM J. Matrix
Anal. Appl. 31, 2029 (2010), doi:10.1137/090764189). Rows and columns without entries are never
formed, so the cost depends on the number of terms, not of dimensions. Transfer tensors are the
projections

    B_t[i, j, k] = Σ_n U_l[n_l, i] U_r[n_r, j] U_t[n, k],

and the root takes the coefficients themselves in the place of U_t. With orthonormal functions
the error is at most the root of the sum of the squares of all truncated singular values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_htfbr.graph.dimension_tree import Nesting, list_interior, make_nodes
from pipeline_kernels.tree import TreeShape


@dataclass(frozen=True)
class NodeSpace:
    """Matricisation of the coefficients at a node, and its left singular vectors.

    Attributes:
        coordinates: Coordinates below the node, in their order in the tree.
        rows: Distinct indices of these coordinates among the terms, (n_rows, len(coordinates)).
        vectors: Left singular vectors of the matricisation, (n_rows, n); at the root the
            coefficients themselves, (n_rows, 1).
        singular_values: (n,).
    """

    coordinates: tuple[int, ...]
    rows: Tensor
    vectors: Tensor
    singular_values: Tensor


def decompose(terms: Tensor, coefficients: Tensor, nesting: Nesting) -> list[NodeSpace]:
    """Decompose the coefficients at every interior node, children before parents.

    Args:
        terms: (n_terms, d).
        coefficients: (n_terms,).
        nesting: The tree.
    """
    return [_decompose_node(terms, coefficients, below) for _, _, below in list_interior(nesting)]


def _decompose_node(terms: Tensor, coefficients: Tensor, below: tuple[int, ...]) -> NodeSpace:
    rows, row_of_term = torch.unique(terms[:, list(below)], dim=0, return_inverse=True)
    others = [c for c in range(terms.shape[1]) if c not in below]
    if not others:
        column = coefficients.new_zeros(len(rows), 1)
        column[row_of_term, 0] = coefficients
        return NodeSpace(below, rows, column, column.norm()[None])
    columns, column_of_term = torch.unique(terms[:, others], dim=0, return_inverse=True)
    matrix = coefficients.new_zeros(len(rows), len(columns))
    matrix[row_of_term, column_of_term] = coefficients
    vectors, singular_values, _ = torch.linalg.svd(matrix, full_matrices=False)
    return NodeSpace(below, rows, vectors, singular_values)


def truncate(
    spaces: Sequence[NodeSpace], nesting: Nesting, leaf_ranks: Sequence[int], ranks: Sequence[int]
) -> tuple[TreeShape, Tensor]:
    """Return the tree with the leading singular vectors of each node.

    Args:
        spaces: Singular vectors of all interior nodes.
        nesting: The tree.
        leaf_ranks: Number of functions of each leaf.
        ranks: Rank of each interior node, including 1 for the root; lower where there are fewer
            singular vectors.

    Returns:
        The shape, and its transfer tensors, flattened.
    """
    kept = [min(rank, s.vectors.shape[1]) for rank, s in zip(ranks, spaces, strict=True)]
    shape = TreeShape(tuple(leaf_ranks), make_nodes(nesting, kept))
    parts = []
    for (left, right, _), space, rank in zip(list_interior(nesting), spaces, kept, strict=True):
        n_left = len(spaces[left - len(leaf_ranks)].coordinates) if left >= len(leaf_ranks) else 1
        by_left = _lift(space.rows[:, :n_left], left, leaf_ranks, spaces, kept)
        by_right = _lift(space.rows[:, n_left:], right, leaf_ranks, spaces, kept)
        U = space.vectors[:, :rank]
        parts.append(torch.einsum("ni,nj,nk->ijk", by_left, by_right, U).flatten())
    return shape, torch.cat(parts)


def _lift(
    indices: Tensor,
    slot: int,
    leaf_ranks: Sequence[int],
    spaces: Sequence[NodeSpace],
    ranks: Sequence[int],
) -> Tensor:
    """Return the functions of a child at indices of its coordinates, (n_rows, rank)."""
    if slot < len(leaf_ranks):
        return torch.eye(leaf_ranks[slot], dtype=torch.float64)[indices[:, 0]]
    space = spaces[slot - len(leaf_ranks)]
    # Rows of a parent restricted to a child are rows of the child: both come from the same terms.
    rows, inverse = torch.unique(torch.cat([space.rows, indices]), dim=0, return_inverse=True)
    place = torch.full((len(rows),), -1)
    place[inverse[: len(space.rows)]] = torch.arange(len(space.rows))
    return space.vectors[place[inverse[len(space.rows) :]], : ranks[slot - len(leaf_ranks)]]


def choose_ranks(spaces: Sequence[NodeSpace], tolerance: float, largest: int) -> list[int]:
    """Return the lowest ranks at which the truncation error of each node is within a tolerance.

    Args:
        spaces: Singular values of all interior nodes.
        tolerance: Root of the sum of truncated squares at a node, relative to the whole.
        largest: Upper bound of the ranks.
    """
    ranks = []
    for space in spaces:
        squares = space.singular_values.square()
        left_out = squares.flip(0).cumsum(0).flip(0).sqrt() / squares.sum().sqrt()
        ranks.append(max(1, min(largest, int((left_out > tolerance).sum()))))
    return ranks
