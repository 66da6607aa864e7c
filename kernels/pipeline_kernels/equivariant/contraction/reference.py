"""The contraction in plain PyTorch, the oracle of the fast implementations.

`tables` describes the polynomial, `rows` names for each atom the row of the coefficients.
"""

import torch
from torch import Tensor

from pipeline_kernels.equivariant.contraction.tables import Tables


def find_rows(order: Tensor, chunks: Tensor) -> Tensor:
    """Return for each atom the row of the coefficients, from an `AtomsByElement`."""
    rows = torch.empty_like(order)
    rows[order] = torch.repeat_interleave(chunks[:, 0], chunks[:, 2] - chunks[:, 1])
    return rows


def value(features: Tensor, coefficients: Tensor, rows: Tensor, tables: Tables) -> Tensor:
    """Return `sum_t c[t] x[i_t] x[j_t] x[k_t]` of the terms of each output."""
    a, b, c = _gather_factors(features, tables)
    return _sum_over_terms(coefficients[rows] * a * b * c, tables)


def by_features(
    features: Tensor, coefficients: Tensor, weights: Tensor, rows: Tensor, tables: Tables
) -> Tensor:
    """Return the derivative of `(weights * value).sum()` by the features."""
    a, b, c = _gather_factors(features, tables)
    weighted = coefficients[rows] * weights[:, tables.terms[:, 0]]
    parts = [weighted * b * c, weighted * a * c, weighted * a * b]
    return _sum_over_factors(parts, features, tables)


def by_coefficients(
    features: Tensor, weights: Tensor, rows: Tensor, tables: Tables, n_present: int
) -> Tensor:
    """Return the derivative of `(weights * value).sum()` by the coefficients."""
    a, b, c = _gather_factors(features, tables)
    terms = weights[:, tables.terms[:, 0]] * a * b * c
    return terms.new_zeros(n_present, *terms.shape[1:]).index_add(0, rows, terms)


def tangents(
    features: Tensor,
    coefficients: Tensor,
    weights: Tensor,
    direction: Tensor,
    rows: Tensor,
    tables: Tables,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the changes of `value`, `by_features`, `by_coefficients` along one of features."""
    a, b, c = _gather_factors(features, tables)
    da, db, dc = _gather_factors(direction, tables, absent=0)
    change = da * b * c + a * db * c + a * b * dc
    scale, weight = coefficients[rows], weights[:, tables.terms[:, 0]]
    weighted = scale * weight
    parts = [db * c + b * dc, da * c + a * dc, da * b + a * db]
    by_input = _sum_over_factors([weighted * part for part in parts], features, tables)
    by_term = coefficients.new_zeros(coefficients.shape).index_add(0, rows, weight * change)
    return _sum_over_terms(scale * change, tables), by_input, by_term


def _gather_factors(features: Tensor, tables: Tables, absent: int = 1) -> list[Tensor]:
    """Return the inputs of each term, three tensors `(n_atoms, n_terms, n_channels)`."""
    n_atoms, _, n_channels = features.shape
    last = features.new_full((n_atoms, 1, n_channels), absent)  # what the index -1 finds
    extended = torch.cat([features, last], 1)
    return [extended[:, index] for index in (tables.terms[:, 1:] % extended.shape[1]).T]


def _sum_over_terms(terms: Tensor, tables: Tables) -> Tensor:
    n_outputs = len(tables.output_offsets) - 1
    shape = (len(terms), n_outputs, terms.shape[2])
    return terms.new_zeros(shape).index_add(1, tables.terms[:, 0], terms)


def _sum_over_factors(parts: list[Tensor], features: Tensor, tables: Tables) -> Tensor:
    """Add the contributions of terms to each of their inputs."""
    n_atoms, n_inputs, n_channels = features.shape
    sums = features.new_zeros(n_atoms, n_inputs + 1, n_channels)
    for part, index in zip(parts, tables.terms[:, 1:].T % (n_inputs + 1), strict=True):
        sums = sums.index_add(1, index, part)
    return sums[:, :n_inputs]
