"""Adaptive tree-based tensors by the package tensap, within a time limit; for `htfbr_accuracy.py`.

Its tutorial's settings: canonical start, adaptive ranks, degrees of the leaves chosen by
leave-one-out errors. It takes the tree of ours, for its adaptation of the tree fails with numpy 2.4
(tensap 1.8), and the functions of ours in the form that it asks for, orthonormal over the domain.
The package has no time limit; the solver below stops where the time is over, and the iterate with
the least error on the validation points counts.

E. Grelier, A. Nouy, M. Chevreuil, Learning with tree-based tensor formats, arXiv:1811.04455.
"""

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from importlib.util import find_spec
from itertools import count
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_htfbr.graph.basis import Leaf
from pipeline_htfbr.graph.dimension_tree import Nesting, build_balanced
from subjects.htfbr.baselines import Fitted, Problem
from subjects.htfbr.project import limit_threads_of_children

MOST_ITERATIONS = 100


class TimeOverError(Exception):
    """The time limit is reached."""


def is_installed() -> bool:
    """Tell whether tensap can be imported."""
    return find_spec("tensap") is not None


def fit_tensap_tree(problem: Problem, seconds: float, threads: int) -> Fitted:
    """Fit by tensap for so many seconds at most, with so many threads of its linear algebra.

    In a process of its own, since that number is read when numpy is first imported.
    """
    with limit_threads_of_children(threads), ProcessPoolExecutor(1, get_context("spawn")) as pool:
        best = pool.submit(search_tree, problem, seconds).result()
    if "tensor" not in best:
        raise ValueError(f"tensap: {seconds:g} s do not suffice for one iterate; raise the limit")
    tensor, bases = best["tensor"], make_bases(problem.leaves)

    def predict(x: Tensor) -> Tensor:
        return torch.from_numpy(
            evaluate_tensor(tensor, bases, scale_coordinates(problem.leaves, x))
        )

    facts = {name: best[name] for name in ("iterations", "stopped_by_time")} | {"threads": threads}
    ranks = [int(rank) for rank in tensor.ranks]
    return Fitted(predict, {**facts, "ranks": ranks, "parameters": int(tensor.storage())})


def search_tree(problem: Problem, seconds: float) -> dict[str, Any]:
    """Return the best iterate, `tensor`, and facts of the search."""
    np.random.seed(0)  # noqa: NPY002 - the package draws from the global generator
    bases = make_bases(problem.leaves)
    train, val = (
        scale_coordinates(problem.leaves, problem.parts[name].x) for name in ("train", "val")
    )
    y, held = problem.standard("train").numpy(), problem.standard("val").numpy()
    best: dict[str, Any] = {"error": np.inf, "iterations": 0, "stopped_by_time": False}

    def keep(tensor: Any) -> None:
        best["iterations"] += 1
        error = float(np.sqrt(np.mean((evaluate_tensor(tensor, bases, val) - held) ** 2)))
        if error < best["error"]:
            best.update(error=error, tensor=deepcopy(tensor))

    solver = make_limited_solver(len(problem.leaves), time.perf_counter() + seconds, keep)
    configure(solver, bases, train, y)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            actual, _ = solver.solve()
        keep(actual.tensor)
    except TimeOverError:
        best["stopped_by_time"] = True
    return best


def make_limited_solver(order: int, deadline: float, keep: Callable[[Any], None]) -> Any:
    """Return tensap's solver on the tree of ours, with a deadline, that shows its iterates."""
    import tensap

    class Limited(tensap.TreeBasedTensorLearning):  # type: ignore[misc]
        def prepare_alternating_minimization_system(self, f: Any, mu: int) -> Any:
            if time.perf_counter() > deadline:
                raise TimeOverError
            return super().prepare_alternating_minimization_system(f, mu)

        def new_rank_selection(self, f: Any) -> Any:
            keep(f.tensor)
            return super().new_rank_selection(f)

    tree = build_balanced_tree(order)
    return Limited(tree, np.full(tree.nb_nodes, True), tensap.SquareLossFunction())


def build_balanced_tree(order: int) -> Any:
    """Return the balanced tree of ours; nodes count from 1, parents before their children."""
    import tensap

    leaves, edges, actual = [0] * order, [], count(1)

    def visit(part: Nesting) -> int:
        node = next(actual)
        if isinstance(part, int):
            leaves[part] = node
        else:
            edges.extend((node, visit(child)) for child in part)
        return node

    visit(build_balanced(range(order)))
    adjacency = np.zeros((2 * order - 1, 2 * order - 1), dtype=int)
    for parent, child in edges:
        adjacency[parent - 1, child - 1] = 1
    return tensap.DimensionTree(np.array(leaves), adjacency)


def configure(solver: Any, bases: Any, x: np.ndarray, y: np.ndarray) -> None:
    """Give the solver its data and the settings of the package's tutorial."""
    solver.bases, solver.bases_eval, solver.training_data = bases, bases.eval(x), [None, y.copy()]
    solver.tolerance.update(on_stagnation=1e-10, on_error=1e-10)
    solver.linear_model_learning.regularization = False
    solver.linear_model_learning.basis_adaptation = True
    solver.linear_model_learning.error_estimation = True
    solver.bases_adaptation_path = [np.triu(np.ones((n, n), bool)) for n in bases.cardinals()]
    solver.rank_adaptation = True
    solver.rank_adaptation_options.update(max_iterations=MOST_ITERATIONS, theta=0.8)
    solver.alternating_minimization_parameters.update(stagnation=1e-10, max_iterations=5)
    solver.display = False


def make_bases(leaves: Sequence[Leaf]) -> Any:
    """Return functions that span those of the leaves, orthonormal over the domain."""
    import tensap

    return tensap.FunctionalBases([make_basis(leaf) for leaf in leaves])


def make_basis(leaf: Leaf) -> Any:
    import tensap

    if leaf.family in ("chebyshev", "legendre"):
        polynomials = tensap.LegendrePolynomials()
        return tensap.PolynomialFunctionalBasis(polynomials, range(leaf.count))
    assert leaf.family == "cosine", "ours takes cosines of the torsion of HONO"

    class Cosines(tensap.UserDefinedFunctionalBasis):  # type: ignore[misc]
        def mean(self, *_: Any) -> np.ndarray:
            return np.eye(leaf.count)[0]

    half_a_period = tensap.UniformRandomVariable(leaf.lower, leaf.upper)
    basis = Cosines([make_cosine(leaf, m) for m in range(leaf.count)], half_a_period, 1)
    basis.is_orthonormal = True
    return basis


def make_cosine(leaf: Leaf, m: int) -> Callable[[np.ndarray], np.ndarray]:
    assert leaf.period is not None
    angle, size = 2 * np.pi * m / leaf.period, 1.0 if m == 0 else np.sqrt(2.0)
    return lambda x: size * np.cos(angle * np.ravel(x))


def scale_coordinates(leaves: Sequence[Leaf], x: Tensor) -> np.ndarray:
    """Return coordinates as the bases take them: from -1 to 1 for polynomials."""
    columns = [
        x[:, mu] if leaf.family == "cosine" else 2 * (x[:, mu] - leaf.lower) / width - 1
        for mu, leaf in enumerate(leaves)
        for width in [leaf.upper - leaf.lower]
    ]
    return torch.stack(columns, 1).numpy()


def evaluate_tensor(tensor: Any, bases: Any, x: np.ndarray) -> np.ndarray:
    """Evaluate a tensor at points, (n,)."""
    import tensap

    actual = tensap.FunctionalTensor(tensor, bases.eval(x)).eval(None)
    return np.ravel(np.asarray(getattr(actual, "data", actual), dtype=np.float64))
