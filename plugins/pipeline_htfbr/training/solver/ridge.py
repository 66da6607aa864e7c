"""Ridge start: a linear fit by products of leaf functions, tuned on validation points.

Ridge regression with a prior whose width falls with the degree of a term: minimise

    Σ_n (y_n − Σ_t c_t φ_t(x_n))² + λ Σ_t (c_t / γ^deg(t))².

Total degree, λ and γ are those with the least error on the validation points. When all terms of the
next degree would be too many, the terms that correlate most with the residual are taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks
from pipeline_htfbr.training.solver.terms import (
    BLOCK,
    compute_values,
    count_terms,
    iterate_values,
    list_terms,
    sum_degrees,
)

_LAMBDAS: Final = (1e-6, 1e-4, 1e-2, 1e-1, 1.0, 10.0)
_GAMMAS: Final = (1.0, 0.5, 0.25)
_MOST_CANDIDATES: Final = 40_000
_SCREENED_COLUMNS: Final = 8192
_ENOUGH: Final = 0.9
"""Error of a larger fit relative to the previous one, up to which it is kept."""


@dataclass(frozen=True)
class Data:
    """Columns of a linear fit.

    A column is an energy, or a derivative: an expansion is linear in the functions of each leaf, so
    a derivative by a coordinate is a point at which the functions of that leaf are replaced by
    their derivatives. In the same way the weight of a column is a factor of the functions of the
    first leaf and of the target.

    Attributes:
        functions: Orthonormal functions of each leaf at all columns, (m, n).
        degrees: Degree of each function of each leaf.
        y: Standardised targets, (n,).
        train: Indices of the training columns of this rank.
        val: Indices of the validation points, the same on all ranks.
        ranks: The ranks, which all return the same result.
    """

    functions: Sequence[Tensor]
    degrees: Sequence[Sequence[int]]
    y: Tensor
    train: Tensor
    val: Tensor
    ranks: Ranks


@dataclass(frozen=True)
class Expansion:
    """Sum of terms.

    Attributes:
        terms: (n_terms, d) function numbers.
        coefficients: (n_terms,).
        degree: Largest degree.
        lam: λ.
        gamma: γ.
        train_rmse: Error over the columns that are fitted, standardised.
        val_rmse: Error on the validation points, standardised.
    """

    terms: Tensor
    coefficients: Tensor
    degree: int
    lam: float
    gamma: float
    train_rmse: float
    val_rmse: float


def fit_expansions(data: Data, max_terms: int) -> Iterator[Expansion]:
    """Fit expansions of rising degree until the validation error stops falling.

    Args:
        data: Columns of the fit.
        max_terms: Largest number of terms; also limited to the number of training columns.

    Yields:
        Each fit that was tried.

    Raises:
        ValueError: Not even the terms of degree 1 are allowed.
    """
    n_columns = int(data.ranks.all_reduce_sum(torch.tensor(len(data.train))))
    limit, best, waited = min(max_terms, n_columns), None, 0
    for degree in range(1, sum(max(leaf) for leaf in data.degrees) + 1):
        n_terms = count_terms(data.degrees, degree)
        if n_terms <= limit:
            terms = list_terms(data.degrees, degree)
        elif best is not None and n_terms <= _MOST_CANDIDATES:
            terms = screen_terms(data, best, degree, limit)
        elif best is None:
            raise ValueError(
                f"the {n_terms} terms of degree 1 are more than train.solver.max_terms "
                f"({max_terms}) or the {n_columns} training values allow; raise it, or add points"
            )
        else:
            return
        expansion = fit_coefficients(data, terms, degree)
        yield expansion
        # An even or odd function improves only with every second degree.
        gained = best is None or expansion.val_rmse <= _ENOUGH * best.val_rmse
        waited = 0 if gained else waited + 1
        if waited >= (1 if n_terms > limit else 2):
            return
        if best is None or expansion.val_rmse < best.val_rmse:
            best = expansion


def screen_terms(data: Data, best: Expansion, degree: int, limit: int) -> Tensor:
    """Return the largest terms of a fit and those that correlate most with its residual.

    The largest terms of the fit take at least half of the places; correlation is taken over a part
    of the columns, since it only ranks candidates.
    """
    rows = data.train[:: max(1, len(data.train) * data.ranks.size // _SCREENED_COLUMNS)]
    residual = data.y[rows] - predict(data, best, rows)
    every = list_terms(data.degrees, degree)
    _, first_seen = torch.unique(torch.cat([best.terms, every]), dim=0, return_inverse=True)
    existing = torch.zeros(int(first_seen.max()) + 1, dtype=torch.bool)
    existing[first_seen[: len(best.terms)]] = True
    fresh = every[~existing[first_seen[len(best.terms) :]]]
    gain = torch.zeros(len(fresh), dtype=torch.float64)
    for part in torch.arange(len(rows)).split(BLOCK):
        gain += compute_values(data.functions, fresh, rows[part]) @ residual[part]
    data.ranks.all_reduce_sum(gain)
    n_kept = min(len(best.terms), max(limit // 2, limit - len(fresh)))
    kept = best.terms[best.coefficients.abs().argsort(descending=True)[:n_kept]]
    added = fresh[gain.abs().argsort(descending=True)[: limit - n_kept]]
    return torch.cat([kept, added])


def fit_coefficients(data: Data, terms: Tensor, degree: int) -> Expansion:
    """Fit the coefficients of terms; λ and γ by validation."""
    gram, right = build_normal_equations(data, terms)
    held = torch.cat([block for _, block in iterate_values(data.functions, terms, data.val)])
    steps = sum_degrees(terms, data.degrees).double()
    trials: list[tuple[float, float, float, Tensor]] = []
    for gamma in _GAMMAS:
        width = gamma**steps
        for lam in _LAMBDAS:
            coefficients = _solve(gram, right, lam / width**2)
            if coefficients is not None:
                error = float((held @ coefficients - data.y[data.val]).square().mean().sqrt())
                trials.append((error, lam, gamma, coefficients))
    error, lam, gamma, coefficients = min(trials, key=lambda one: one[0])
    squares = coefficients @ (gram @ coefficients) - 2 * right @ coefficients
    total = data.ranks.all_reduce_sum((data.y[data.train] ** 2).sum())
    n_columns = data.ranks.all_reduce_sum(torch.tensor(float(len(data.train))))
    train = float(((total + squares) / n_columns).clamp(min=0).sqrt())
    return Expansion(terms, coefficients, degree, lam, gamma, train, error)


def build_normal_equations(data: Data, terms: Tensor) -> tuple[Tensor, Tensor]:
    """Return Φ^T Φ, (n_terms, n_terms), and Φ^T y, (n_terms,), over the columns of all ranks."""
    gram = torch.zeros(len(terms), len(terms), dtype=torch.float64)
    right = torch.zeros(len(terms), dtype=torch.float64)
    for numbers, block in iterate_values(data.functions, terms, data.train):
        gram.addmm_(block.T, block)
        right.addmv_(block.T, data.y[numbers])
    return data.ranks.all_reduce_sum(gram), data.ranks.all_reduce_sum(right)


def predict(data: Data, expansion: Expansion, rows: Tensor) -> Tensor:
    """Return the values of an expansion at points, (n_rows,)."""
    parts = iterate_values(data.functions, expansion.terms, rows)
    return torch.cat([block @ expansion.coefficients for _, block in parts])


def _solve(gram: Tensor, right: Tensor, penalty: Tensor) -> Tensor | None:
    """Solve (G + diag(penalty)) c = right, scaled to a unit diagonal; None if it is singular."""
    scale = (gram.diagonal() + penalty).rsqrt()
    matrix = gram * scale * scale[:, None]
    matrix.diagonal().fill_(1.0)
    factor, info = torch.linalg.cholesky_ex(matrix)
    if info != 0:
        return None
    return scale * torch.cholesky_solve((scale * right)[:, None], factor)[:, 0]
