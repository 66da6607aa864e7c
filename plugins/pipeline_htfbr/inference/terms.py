"""Expansion of a tree into a plain sum of products of basis functions.

From the leaves to the root, each node's functions are written as sums over the products of basis
functions of the coordinates below it: one row per product, one column per function. Negligible
rows are dropped. If function k of a node changes by δ_k, the value at the root changes by
Σ δ_k E_k, with E_k the part of the tree that is not below the node; |E_k| is bounded from above by
replacing all tensors and basis functions by their largest absolute values. At the root itself the
coefficients of the dropped products are added up exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_core.units import HARTREE
from pipeline_htfbr.graph.basis import Leaf
from pipeline_htfbr.model import Surface
from pipeline_kernels.tree import Node

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

_INNER_PART = 0.1
"""Fraction of the tolerance that may be used below the root, where bounds are loose."""
_MAX_ENTRIES = 60_000_000
"""Largest table of an inner node, and largest block of the root: 480 MB."""
_BLOCK = 4_000_000
_LOW_BITS = 46
"""Bits of a double that are ignored when terms are sorted into bins: 64 bins per octave."""


class TooManyTerms(Exception):  # noqa: N818 - an outcome, that the caller reports
    """The tolerance requires more products than allowed; the message gives the error."""


@dataclass(frozen=True)
class Terms:
    """V = shift + Σ c Π φ.

    Attributes:
        c: Coefficients, (n_terms,) hartree, largest first.
        functions: Number of the function of each coordinate, (n_terms, d).
        shift: hartree.
        error_bound: Largest error anywhere that the dropped products may add up to, hartree.
    """

    c: Floats
    functions: NDArray[np.int16]
    shift: float
    error_bound: float


@dataclass(frozen=True)
class _Table:
    """Functions of a slot as sums of products.

    Attributes:
        coordinates: Coordinates below the slot.
        functions: Number of the basis function of each coordinate, (n_rows, n_below).
        weights: Largest absolute value of each product of basis functions, (n_rows,).
        c: Coefficients, (n_rows, rank).
    """

    coordinates: tuple[int, ...]
    functions: NDArray[np.int16]
    weights: Floats
    c: Floats


def expand(surface: Surface, tolerance: float, max_terms: int) -> Terms:
    """Write a surface as a sum of products.

    Args:
        surface: The surface in float64, on the CPU.
        tolerance: Bound on the total error of the dropped products, hartree.
        max_terms: Largest number of products.

    Raises:
        TooManyTerms: `max_terms` products do not reach the tolerance.
    """
    scale, shift = float(surface.scale) / HARTREE, float(surface.shift) / HARTREE
    tensors = [B.detach().numpy() for B in surface.shape.split_transfers(surface.transfers)]
    slots = [_tabulate_leaf(surface, mu) for mu in range(len(surface.leaves))]
    bounds = _bound_outer(surface, tensors)
    share = _INNER_PART * tolerance / max(1, len(tensors) - 1)
    spent = 0.0
    for node, B in zip(surface.shape.nodes[:-1], tensors[:-1], strict=True):
        rows = len(slots[node.left].c) * len(slots[node.right].c)
        if rows * node.rank > _MAX_ENTRIES:
            raise TooManyTerms(f"a node of the tree alone has {rows} products")
        table = _multiply(slots, node, B)
        table, lost = _prune(table, abs(scale) * bounds[len(slots)], share)
        spent += lost
        slots.append(table)
    last = surface.shape.nodes[-1]
    root = scale * tensors[-1][:, :, 0]
    left, right = slots[last.left], slots[last.right]
    c, functions, lost = _collect_root_terms(left, right, root, tolerance - spent, max_terms)
    return Terms(c, functions, shift, spent + lost)


def bound_functions(leaf: Leaf) -> Floats:
    """Return the largest absolute value of each function in the domain, (count,)."""
    return np.array(
        [(2 * m + 1) ** 0.5 if leaf.family == "legendre" else 1.0 for m in leaf.degrees]
    )


def _tabulate_leaf(surface: Surface, mu: int) -> _Table:
    weights = bound_functions(surface.leaves[mu])
    count = len(weights)
    c = surface.maps[mu].detach().numpy() if len(surface.maps) else np.eye(count)
    return _Table((mu,), np.arange(count, dtype=np.int16)[:, None], weights, c)


def _bound_outer(surface: Surface, tensors: list[Floats]) -> list[Floats]:
    """Return bounds of |E_k| of the functions of all slots, each (rank,)."""
    shape = surface.shape
    inner = []
    for mu in range(shape.n_leaves):
        table = _tabulate_leaf(surface, mu)
        inner.append(np.abs(table.c).T @ table.weights)
    for node, B in zip(shape.nodes, tensors, strict=True):
        inner.append(np.einsum("ijk,i,j->k", np.abs(B), inner[node.left], inner[node.right]))
    outer = [np.ones(1)] * len(inner)
    for i in reversed(range(len(tensors))):
        node, B, above = shape.nodes[i], np.abs(tensors[i]), outer[shape.n_leaves + i]
        outer[node.left] = np.einsum("ijk,j,k->i", B, inner[node.right], above)
        outer[node.right] = np.einsum("ijk,i,k->j", B, inner[node.left], above)
    return outer


def _multiply(slots: list[_Table], node: Node, B: Floats) -> _Table:
    left, right = slots[node.left], slots[node.right]
    c = np.einsum("ai,bj,ijk->abk", left.c, right.c, B, optimize=True)
    return _Table(
        left.coordinates + right.coordinates,
        np.hstack(
            [
                np.repeat(left.functions, len(right.c), axis=0),
                np.tile(right.functions, (len(left.c), 1)),
            ]
        ),
        np.outer(left.weights, right.weights).ravel(),
        c.reshape(-1, B.shape[2]),
    )


def _prune(table: _Table, bounds: Floats, allowed: float) -> tuple[_Table, float]:
    """Drop the least important rows within `allowed`; return also their total error."""
    harm = table.weights * (np.abs(table.c) @ bounds)
    order = np.argsort(harm, kind="stable")
    total = np.cumsum(harm[order])
    n_dropped = min(int(np.searchsorted(total, allowed, side="right")), len(harm) - 1)
    kept = np.sort(order[n_dropped:])
    lost = float(total[n_dropped - 1]) if n_dropped else 0.0
    rows = (table.functions[kept], table.weights[kept], table.c[kept])
    return _Table(table.coordinates, *rows), lost


def _collect_root_terms(
    left: _Table, right: _Table, B: Floats, allowed: float, max_terms: int
) -> tuple[Floats, NDArray[np.int16], float]:
    """Return coefficients, functions and the error bound of the dropped products."""
    n_bins = 1 << (64 - _LOW_BITS - 1)
    sums, counts = np.zeros(n_bins), np.zeros(n_bins, dtype=np.int64)
    for _, _, size in _iterate_blocks(left, right, B):
        bins = _find_bins(size).ravel()
        sums += np.bincount(bins, size.ravel(), n_bins)
        counts += np.bincount(bins, minlength=n_bins)
    total = np.cumsum(sums)
    first = int(np.searchsorted(total, allowed, side="right"))  # lowest bin that is kept
    if counts[first:].sum() > max_terms:
        n_above = np.cumsum(counts[::-1])[::-1]
        missing = total[int(np.argmax(n_above <= max_terms)) - 1]
        raise TooManyTerms(f"the largest {max_terms} leave up to {missing:.1e} hartree")
    parts = []
    for rows, c, size in _iterate_blocks(left, right, B):
        a, b = np.nonzero(_find_bins(size) >= first)
        parts.append((c[a, b], a + rows.start, b))
    c, a, b = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-np.abs(c), kind="stable")
    functions = np.empty((len(c), len(left.coordinates + right.coordinates)), np.int16)
    functions[:, left.coordinates] = left.functions[a[order]]
    functions[:, right.coordinates] = right.functions[b[order]]
    return c[order], functions, float(total[first - 1]) if first else 0.0


def _iterate_blocks(
    left: _Table, right: _Table, B: Floats
) -> Iterator[tuple[slice, Floats, Floats]]:
    """Yield rows of the left table, the coefficients of their products, and bounds of these."""
    step = max(1, _BLOCK // len(right.c))
    over = B @ right.c.T  # (rank_left, n_right)
    for start in range(0, len(left.c), step):
        rows = slice(start, start + step)
        c = left.c[rows] @ over
        yield rows, c, np.abs(c) * np.outer(left.weights[rows], right.weights)


def _find_bins(size: Floats) -> Numbers:
    """Return the bins of positive numbers, in the same order, since doubles sort as integers."""
    return np.ascontiguousarray(size).view(np.int64) >> _LOW_BITS
