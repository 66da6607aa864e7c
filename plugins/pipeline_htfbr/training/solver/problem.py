"""Conversion of the points of a run to a fit problem, and of the solver's tree to a surface."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_htfbr.data.points import Points
from pipeline_htfbr.graph.basis import compute_features, compute_slopes
from pipeline_htfbr.graph.build import TreeStructure, read_features
from pipeline_htfbr.training.solver.newton import Columns
from pipeline_htfbr.training.solver.ridge import Data, Expansion
from pipeline_htfbr.training.solver.terms import make_orthonormal, sum_degrees
from pipeline_kernels.tree import TreeShape


@dataclass(frozen=True)
class Problem:
    """Fit problem in orthonormal functions.

    Attributes:
        data: Columns of this rank and validation points.
        maps: For each leaf the orthonormal functions in terms of its own, (m, count).
    """

    data: Data
    maps: Sequence[Tensor]

    def select_columns(self, rows: Tensor, counts: Sequence[int]) -> Columns:
        """Return columns for a tree whose leaves have the first `counts` functions each."""
        parts = zip(self.data.functions, counts, strict=True)
        table = torch.cat([functions[:count, rows] for functions, count in parts])
        return Columns(table.contiguous(), self.data.y[rows])


def make_problem(
    run: Run,
    points: Points,
    structure: TreeStructure,
    scaling: tuple[float, float],
    gradient_weight: float,
    ranks: Ranks,
) -> Problem:
    """Return the fit problem of a run.

    Args:
        run: The run, from which the tables of functions are read.
        points: All points.
        structure: The leaves and the tree.
        scaling: Energy that is subtracted, and energy by which the difference is divided, eV.
        gradient_weight: Weight of the squared error of a derivative; 0 fits energies alone.
        ranks: The ranks; training points are distributed round-robin.
    """
    shift, scale = scaling
    counts = [leaf.count for leaf in structure.leaves]
    table, train = read_features(run), torch.from_numpy(points.find_rows("train"))
    maps = make_orthonormal(table, counts, train)
    own, val = train[ranks.rank :: ranks.size], torch.from_numpy(points.find_rows("val"))
    y = (torch.from_numpy(points.energy) - shift) / scale
    if gradient_weight:
        derived, targets = differentiate_columns(points, structure, own, scale)
        weight = gradient_weight**0.5
        derived[: counts[0]] *= weight
        own = torch.cat([own, torch.arange(len(y), len(y) + len(targets))])
        table, y = torch.cat([table, derived], 1), torch.cat([y, weight * targets])
    functions = [m @ part for m, part in zip(maps, table.split(counts), strict=True)]
    degrees = [leaf.degrees[: len(m)] for leaf, m in zip(structure.leaves, maps, strict=True)]
    return Problem(Data(functions, degrees, y, own, val, ranks), maps)


def differentiate_columns(
    points: Points, structure: TreeStructure, rows: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the derivatives by all coordinates at some points as columns.

    Derivatives are by the coordinate in units of half its domain, so that all coordinates
    have equal weight.

    Returns:
        Functions of all leaves, (n_functions, d n_rows), and targets, (d n_rows,).
    """
    assert points.gradient is not None, "the task refuses points without"
    x = torch.from_numpy(points.x)[rows]
    gradient = torch.from_numpy(points.gradient)[rows] / scale
    counts = [leaf.count for leaf in structure.leaves]
    values = list(compute_features(structure.leaves, x).split(counts))
    derivatives = compute_slopes(structure.leaves, x).split(counts)
    tables, targets = [], []
    for mu, leaf in enumerate(structure.leaves):
        half = (leaf.upper - leaf.lower) / 2
        tables.append(torch.cat([*values[:mu], half * derivatives[mu], *values[mu + 1 :]]))
        targets.append(half * gradient[:, mu])
    return torch.cat(tables, 1), torch.cat(targets)


def make_penalty(
    expansion: Expansion, degrees: Sequence[Sequence[int]], counts: Sequence[int]
) -> Columns:
    """Return the degree-weighted ridge penalty of an expansion as columns for a tree.

    The coefficient of a term is the value of the tree where the functions of the term are 1 and
    all others 0. With the weight sqrt(λ)/γ^degree and the target 0 the squared errors of these
    columns add up to λ Σ_t (c_t / γ^deg(t))².
    """
    steps = sum_degrees(expansion.terms, degrees).double()
    weights = expansion.lam**0.5 / expansion.gamma**steps
    rows = []
    for mu, count in enumerate(counts):
        one = torch.zeros(count, len(expansion.terms), dtype=torch.float64)
        one[expansion.terms[:, mu], torch.arange(len(expansion.terms))] = 1.0
        rows.append(one * weights if mu == 0 else one)
    return Columns(torch.cat(rows), torch.zeros(len(expansion.terms), dtype=torch.float64))


def count_functions(expansion: Expansion, structure: TreeStructure) -> list[int]:
    """Return the number of functions of each leaf in an expansion, in whole degrees, (d,)."""
    counts = []
    for leaf, last in zip(structure.leaves, expansion.terms.amax(0).tolist(), strict=True):
        counts.append(replace(leaf, degree=leaf.degrees[last]).count)
    return counts


def express_in_functions(
    shape: TreeShape, transfers: Tensor, maps: Sequence[Tensor], structure: TreeStructure
) -> tuple[TreeStructure, TreeShape, Tensor]:
    """Return a tree over orthonormal functions as one over the functions of the leaves.

    Args:
        shape: The tree; its leaves have the first orthonormal functions.
        transfers: Its transfer tensors.
        maps: Orthonormal functions in terms of the leaves' own.
        structure: Leaves and tree.

    Returns:
        The structure with leaves of the degrees in use, the shape, and the transfer tensors.
    """
    leaves, counts = [], []
    for leaf, rank in zip(structure.leaves, shape.leaf_ranks, strict=True):
        leaves.append(replace(leaf, degree=leaf.degrees[rank - 1]))
        counts.append(leaves[-1].count)
    parts = []
    for node, B in zip(shape.nodes, shape.split_transfers(transfers), strict=True):
        by_leaf = B
        if node.left < len(leaves):
            m = maps[node.left][: B.shape[0], : counts[node.left]]
            by_leaf = torch.einsum("ijk,ia->ajk", by_leaf, m)
        if node.right < len(leaves):
            m = maps[node.right][: B.shape[1], : counts[node.right]]
            by_leaf = torch.einsum("ijk,jb->ibk", by_leaf, m)
        parts.append(by_leaf.flatten())
    own = TreeShape(tuple(counts), shape.nodes)
    return replace(structure, leaves=tuple(leaves)), own, torch.cat(parts)
