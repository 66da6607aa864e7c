"""What hierarchical Tucker forms have to beat, on the same points; for `htfbr_accuracy.py`.

Each baseline is fitted to the training points, chooses its settings on the validation points and
sees the test points only afterwards, as ours does. None knows more of the surface than its domain.

| baseline    | what                                                                              |
|-------------|-----------------------------------------------------------------------------------|
| polynomials | ridge regression on Chebyshev polynomials of all coordinates, by total degree     |
| cosines     | the same with cosines of the torsion                                              |
| gaussian    | exact Gaussian process, squared-exponential kernel, coordinates scaled to [-1, 1] |
| tensap      | adaptive tree-based tensor by the package tensap, see `htfbr/tensap.py`          |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline_htfbr.graph.basis import Leaf
from pipeline_htfbr.training.solver.terms import compute_values, list_terms

DEGREES = (4, 5, 6, 7, 8, 9)
PENALTIES = (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
LENGTHS = (1.25, 1.5, 1.75, 2.0, 2.5)
NOISES = (1e-10, 1e-8)


class Subset(NamedTuple):
    """Points and their energies.

    Attributes:
        x: (n, d) in the units of the coordinates.
        y: (n,) hartree.
    """

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Problem:
    """The points of one data seed.

    Attributes:
        parts: `train`, `val`, `test` and `off_grid`.
        leaves: Functions of each coordinate that ours takes, with their domains.
    """

    parts: Mapping[str, Subset]
    leaves: Sequence[Leaf]

    @property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and spread of the training energies."""
        return self.parts["train"].y.mean(), self.parts["train"].y.std()

    def standard(self, part: str) -> Tensor:
        """Energies less their mean over their spread."""
        mean, spread = self.scaling
        return (self.parts[part].y - mean) / spread


@dataclass(frozen=True)
class Fitted:
    """A fit.

    Attributes:
        predict: From points (n, d) to standardised energies (n,).
        chosen: Settings that validation has chosen, and facts.
    """

    predict: Callable[[Tensor], Tensor]
    chosen: Mapping[str, Any]


def compute_rmse(problem: Problem, fitted: Fitted, part: str) -> float:
    """Root mean squared error, hartree."""
    error = fitted.predict(problem.parts[part].x) - problem.standard(part)
    return float(error.square().mean().sqrt() * problem.scaling[1])


def build_polynomials(problem: Problem) -> Fitted:
    """Chebyshev polynomials of all coordinates."""
    return fit_ridge([replace(leaf, family="chebyshev") for leaf in problem.leaves], problem)


def build_cosines(problem: Problem) -> Fitted:
    """Chebyshev polynomials, and cosines of a coordinate with a period."""
    families = ["cosine" if leaf.period else "chebyshev" for leaf in problem.leaves]
    leaves = zip(problem.leaves, families, strict=True)
    return fit_ridge([replace(leaf, family=family) for leaf, family in leaves], problem)


def fit_ridge(leaves: Sequence[Leaf], problem: Problem, degrees: Sequence[int] = DEGREES) -> Fitted:
    """Minimise sum of squares + n penalty |c|^2 over products of functions up to a total degree."""
    x, y, held = problem.parts["train"].x, problem.standard("train"), problem.standard("val")
    best: tuple[float, Fitted] | None = None
    for degree in degrees:
        of_degree = [replace(leaf, degree=degree) for leaf in leaves]
        terms = list_terms([leaf.degrees for leaf in of_degree], degree)
        design = multiply_functions(of_degree, terms, x)
        gram, right = design.T @ design, design.T @ y
        held_design = multiply_functions(of_degree, terms, problem.parts["val"].x)
        for penalty in PENALTIES:
            matrix = gram.clone()
            matrix.diagonal().add_(len(x) * penalty)
            factor, info = torch.linalg.cholesky_ex(matrix)
            if info != 0:
                continue
            c = torch.cholesky_solve(right[:, None], factor)[:, 0]
            error = float((held_design @ c - held).square().mean())
            if best is None or error < best[0]:
                chosen = {"degree": degree, "penalty": penalty, "parameters": len(terms)}
                best = error, Fitted(sum_expansion(of_degree, terms, c), chosen)
    assert best is not None, "no penalty makes the normal equations definite"
    return best[1]


def sum_expansion(leaves: Sequence[Leaf], terms: Tensor, c: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the sum of c times products of functions."""
    return lambda x: torch.cat(
        [multiply_functions(leaves, terms, block) @ c for block in x.split(4096)]
    )


def multiply_functions(leaves: Sequence[Leaf], terms: Tensor, x: Tensor) -> Tensor:
    """Products of functions at points, (n, n_terms)."""
    functions = [leaf.functions(x[:, mu]) for mu, leaf in enumerate(leaves)]
    return compute_values(functions, terms, torch.arange(len(x))).T


def fit_gaussian(problem: Problem) -> Fitted:
    """Mean of the Gaussian process with exp(-|s - s'|^2 / 2 length^2) + noise delta."""
    lower, upper = torch.tensor([(leaf.lower, leaf.upper) for leaf in problem.leaves]).double().T
    train, held = (2 * (problem.parts[p].x - lower) / (upper - lower) - 1 for p in ("train", "val"))
    y, held_y = problem.standard("train"), problem.standard("val")
    best: tuple[float, dict[str, float], Tensor] | None = None
    for length in LENGTHS:
        for noise in NOISES:
            matrix = kernel(train, train, length)
            matrix.diagonal().add_(noise)
            factor, info = torch.linalg.cholesky_ex(matrix)
            del matrix
            if info != 0:
                continue
            weights = torch.cholesky_solve(y[:, None], factor)[:, 0]
            error = float((kernel(held, train, length) @ weights - held_y).square().mean())
            if best is None or error < best[0]:
                best = error, {"length": length, "noise": noise}, weights
    assert best is not None, "no noise makes the kernel matrix definite"
    _, chosen, weights = best

    def predict(x: Tensor) -> Tensor:
        places = 2 * (x - lower) / (upper - lower) - 1
        blocks = (kernel(block, train, chosen["length"]) @ weights for block in places.split(2048))
        return torch.cat(list(blocks))

    return Fitted(predict, {**chosen, "parameters": len(train)})


def kernel(left: Tensor, right: Tensor, length: float) -> Tensor:
    """Return exp(-|s - s'|^2 / 2 length^2), (n_left, n_right)."""
    squares = left.square().sum(1)[:, None] + right.square().sum(1)
    squares.addmm_(left, right.T, alpha=-2).clamp_(min=0)
    return squares.mul_(-0.5 / length**2).exp_()
