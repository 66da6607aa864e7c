"""The solver: ridge start, hierarchical SVD, rank growth, polish; all chosen by validation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.project.run import Run
from pipeline_core.task import build_task
from pipeline_core.training.fits import FitWriter
from pipeline_core.training.out_of_memory import report_out_of_memory
from pipeline_core.training.precision import choose_dtype
from pipeline_htfbr.data.points import read_points
from pipeline_htfbr.graph.build import TreeStructure, read_structure
from pipeline_htfbr.graph.dimension_tree import list_interior
from pipeline_htfbr.model import Surface, replace_shape
from pipeline_htfbr.options import HTOptions, HTTrainOptions
from pipeline_htfbr.training.refusals import warn_if_underdetermined
from pipeline_htfbr.training.solver.hsvd import NodeSpace, choose_ranks, decompose, truncate
from pipeline_htfbr.training.solver.newton import Columns, polish
from pipeline_htfbr.training.solver.problem import (
    count_functions,
    express_in_functions,
    make_penalty,
    make_problem,
)
from pipeline_htfbr.training.solver.ridge import Expansion, fit_expansions
from pipeline_kernels.tree import TreeShape, contract

_TOLERANCES: Final = tuple(0.1 * 10 ** (-k / 4) for k in range(17))
_ENOUGH: Final = 0.97
"""Error of a larger tree relative to the previous one, up to which ranks keep growing."""
_LIMITED: Final = 4.0
"""Error of a tree relative to its start, above which its given ranks limit the accuracy."""


@dataclass(frozen=True)
class Tree:
    """Tree over orthonormal functions, and its error on the validation points (standardised)."""

    shape: TreeShape
    transfers: Tensor
    val_rmse: float


def solve_surface(run: Run) -> dict[str, Any]:
    """Fit the surface of a run; write `run.model` and `run.history`.

    Returns:
        Chosen hyperparameters and errors on the validation points.

    Raises:
        ValueError: Options contradict each other or the data, or memory does not suffice.
    """
    options = run.get_section("train", HTTrainOptions)
    cure = (
        f"in the solver of {run.experiment}; lower train.solver.max_terms (now "
        f"{options.solver.max_terms}), model.rank, train.solver.max_rank or graph.degree, or take "
        "fewer points"
    )
    with connect_ranks("cpu", run.state) as ranks, report_out_of_memory(lambda: cure):
        return _Solver(run, options, ranks).fit()


class _Solver:
    """State of one fit on one rank."""

    def __init__(self, run: Run, options: HTTrainOptions, ranks: Ranks) -> None:
        self._run, self._ranks, self._options = run, ranks, options
        self._writer = FitWriter(run, ranks)
        self._points, self._structure = read_points(run.data), read_structure(run)
        self._task = build_task(run)
        assert isinstance(self._task.module, Surface)
        self._surface = self._task.module
        scaling = float(self._surface.shift), float(self._surface.scale)
        weight = options.gradient_weight
        self._problem = make_problem(run, self._points, self._structure, scaling, weight, ranks)
        if not len(self._problem.data.val):
            raise ValueError(
                f"{run.experiment}: the solver chooses degrees and ranks on validation points, but "
                "the split 'val' is empty; set split.val in the dataset"
            )

    def fit(self) -> dict[str, Any]:
        """Fit the surface and write the result."""
        options, model = self._options.solver, self._run.get_section("model", HTOptions)
        best: Expansion | None = None
        tree: Tree | None = None
        for expansion in fit_expansions(self._problem.data, options.max_terms):
            errors = (expansion.train_rmse, expansion.val_rmse)
            self._record("ridge", errors, degree=expansion.degree, terms=len(expansion.terms))
            if best is not None and expansion.val_rmse >= best.val_rmse:
                continue
            best, tree = expansion, None
            if model.rank != "adaptive":
                tree = self._truncate_to_given(expansion, model.rank)
                if tree.val_rmse > _LIMITED * expansion.val_rmse:
                    break
        assert best is not None
        tree = self._polish(tree or self._grow_ranks(best), best, options.iterations)
        return self._finish(tree, best)

    def _truncate_to_given(self, start: Expansion, rank: int | list[int]) -> Tree:
        """Return an expansion as a tree of the experiment's ranks."""
        n_inner = len(list_interior(self._structure.nesting)) - 1
        ranks = rank if isinstance(rank, list) else [rank] * n_inner
        return self._truncate(self._decompose(start), self._count_functions(start), [*ranks, 1])

    def _grow_ranks(self, start: Expansion) -> Tree:
        """Return an expansion as the smallest tree on which larger ones do not improve."""
        spaces, counts, tree = self._decompose(start), self._count_functions(start), None
        for tolerance in _TOLERANCES:
            ranks = choose_ranks(spaces, tolerance, self._options.solver.max_rank)
            if tree is not None and ranks == [node.rank for node in tree.shape.nodes]:
                continue
            larger = self._truncate(spaces, counts, ranks)
            if tree is not None and larger.val_rmse > _ENOUGH * tree.val_rmse:
                break
            tree = larger
        assert tree is not None
        return tree

    def _decompose(self, start: Expansion) -> list[NodeSpace]:
        return decompose(start.terms, start.coefficients, self._structure.nesting)

    def _count_functions(self, start: Expansion) -> list[int]:
        """Return the number of orthonormal functions of each leaf in the tree."""
        counts = zip(count_functions(start, self._structure), self._problem.maps, strict=True)
        return [min(count, len(m)) for count, m in counts]

    def _truncate(
        self,
        spaces: Sequence[NodeSpace],
        counts: Sequence[int],
        ranks: Sequence[int],
    ) -> Tree:
        """Return a truncated tree."""
        shape, transfers = truncate(spaces, self._structure.nesting, counts, ranks)
        val = self._problem.select_columns(self._problem.data.val, counts)
        own = self._problem.select_columns(self._problem.data.train, counts)
        sums = torch.stack([_sum_squares(own, shape, transfers), torch.tensor(float(len(own.y)))])
        total, n_columns = self._ranks.all_reduce_sum(sums.double()).tolist()
        error = float((_sum_squares(val, shape, transfers) / len(val.y)).sqrt())
        errors = ((total / n_columns) ** 0.5, error)
        self._record("truncated", errors, parameters=shape.n_transfers)
        return Tree(shape, transfers, error)

    def _polish(self, tree: Tree, start: Expansion, iterations: int) -> Tree:
        if iterations == 0:
            return tree
        data, counts = self._problem.data, tree.shape.leaf_ranks
        own = self._problem.select_columns(data.train, counts)
        if self._ranks.is_rank_zero:  # the penalty counts once
            ridge = make_penalty(start, data.degrees, counts)
            own = Columns(torch.cat([own.features, ridge.features], 1), torch.cat([own.y, ridge.y]))
        polished = polish(
            tree.shape,
            tree.transfers,
            own,
            self._problem.select_columns(data.val, counts),
            self._ranks,
            iterations=iterations,
        )
        for errors in polished.history[1:]:
            self._record("polish", errors)
        return Tree(tree.shape, polished.transfers, polished.val_rmse)

    def _record(self, step: str, errors: tuple[float, float], **facts: int) -> None:
        """Add a line to the history: losses are mean squared errors, standardised."""
        train, val = ({"loss": error**2} for error in errors)
        self._writer.record(step, train=train, val=val, **facts)

    def _finish(self, tree: Tree, start: Expansion) -> dict[str, Any]:
        structure, shape, transfers = express_in_functions(
            tree.shape, tree.transfers, self._problem.maps, self._structure
        )
        n_columns = int(self._ranks.all_reduce_sum(torch.tensor(len(self._problem.data.train))))
        summary = {
            "ridge_degree": start.degree,
            "ridge_terms": len(start.terms),
            "degrees": [leaf.degree for leaf in structure.leaves],
            "node_ranks": [node.rank for node in shape.nodes],
            "parameters": shape.n_transfers,
            "val_rmse_ev": tree.val_rmse * float(self._surface.scale),
            "ridge_val_rmse_ev": start.val_rmse * float(self._surface.scale),
            "seconds": self._writer.measure_elapsed(),
            "ranks": self._ranks.size,
        }
        if self._ranks.is_rank_zero:
            warning = warn_if_underdetermined(n_columns, shape.n_transfers)
            summary |= {"warning": warning} if warning else {}
            self._write(structure, shape, transfers)
        return summary

    def _write(self, structure: TreeStructure, shape: TreeShape, transfers: Tensor) -> None:
        surface = Surface(structure.leaves, shape, gradients=self._surface.gradients)
        surface.to(choose_dtype(self._options.precision))
        weights = {**surface.state_dict(), "transfers": transfers}
        weights |= {name: getattr(self._surface, name) for name in ("shift", "scale")}
        assert self._task.metadata is not None
        metadata = replace_shape(self._task.metadata, structure, shape)
        task = replace(self._task, module=surface, metadata=metadata)
        probe = np.arange(min(4, len(self._points.find_rows("val"))))
        self._writer.write_model(task, weights, ("val", probe))


def _sum_squares(columns: Columns, shape: TreeShape, transfers: Tensor) -> Tensor:
    """Return the sum of squared errors of a tree."""
    return (contract(columns.features, transfers, shape) - columns.y).square().sum()
