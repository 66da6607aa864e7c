"""The terms of a polynomial as tables of integers, in an order in which they share factors."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

DEGREE = 3  # the most factors of a term


class Tables(NamedTuple):
    """The terms of a polynomial as integers.

    Every term is a product of a left factor (1, an input or a product of two inputs) and a right
    one (an input, for one output). Absent inputs are -1.

    | table             | shape            | content                                              |
    |-------------------|------------------|------------------------------------------------------|
    | `terms`           | `(n_terms, 4)`   | output and inputs, ordered by right, then left factor|
    | `pairs`           | `(n_pairs, 2)`   | inputs; left factors are 1, all inputs, all pairs    |
    | `rights`          | `(n_rights, 2)`  | output, input                                        |
    | `right_offsets`   | `(n_rights + 1,)`| first term of each right factor                      |
    | `term_left`       | `(n_terms,)`     | left factor of each term                             |
    | `left_offsets`    | `(n_lefts + 1,)` | first entry of each left factor in the next table    |
    | `left_terms`      | `(n_terms, 2)`   | term, right factor                                   |
    | `output_offsets`  | `(n_outputs + 1,)`| first term of each output                           |
    | `input_offsets`   | `(n_inputs + 1,)`| first entry of each input in the next table          |
    | `derivatives`     | `(n_factors, 4)` | term, output, the inputs beside this one             |
    """

    terms: Tensor
    pairs: Tensor
    rights: Tensor
    right_offsets: Tensor
    term_left: Tensor
    left_offsets: Tensor
    left_terms: Tensor
    output_offsets: Tensor
    input_offsets: Tensor
    derivatives: Tensor

    @property
    def sizes(self) -> list[int]:
        """Numbers of inputs, outputs, pairs, right factors, terms and factors of all terms."""
        n_inputs, n_outputs = len(self.input_offsets) - 1, len(self.output_offsets) - 1
        counts = [len(x) for x in (self.pairs, self.rights, self.terms, self.derivatives)]
        return [n_inputs, n_outputs, *counts]

    @property
    def code(self) -> Tensor:
        """All tables one after the other."""
        return torch.cat([table.flatten() for table in self])

    @classmethod
    def of(cls, code: Tensor, sizes: Sequence[int]) -> Self:
        """Return the tables, as views, that have this code and these sizes."""
        n_inputs, n_outputs, n_pairs, n_rights, n_terms, n_factors = sizes
        n_lefts = 1 + n_inputs + n_pairs
        shapes = [(n_terms, 1 + DEGREE), (n_pairs, 2), (n_rights, 2), (n_rights + 1,), (n_terms,)]
        shapes += [(n_lefts + 1,), (n_terms, 2), (n_outputs + 1,), (n_inputs + 1,)]
        shapes += [(n_factors, 1 + DEGREE)]
        parts = code.split([math.prod(shape) for shape in shapes])
        return cls(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))


def arrange(terms: np.ndarray, n_inputs: int, n_outputs: int) -> tuple[np.ndarray, Tables]:
    """Choose the factors of terms.

    Args:
        terms: output and inputs of each term, ascending, first those that are absent (-1),
            `(n_terms, 4)`.
        n_inputs: number of inputs.
        n_outputs: number of outputs.

    Returns:
        The order in which the terms are in the tables, and the tables, int32.
    """
    pairs = _choose_pairs(terms[:, 1:])
    left, last = np.array([_split_term(term, pairs, n_inputs) for term in terms[:, 1:].tolist()]).T
    order = np.lexsort([left, last, terms[:, 0]])
    terms, left = _put_last(terms, last)[order], left[order]
    rights, right = np.unique(terms[:, [0, DEGREE]], axis=0, return_inverse=True)
    right = right.reshape(-1)
    by_left = np.argsort(left, kind="stable")
    derivatives, input_offsets = _list_derivatives(terms, n_inputs)
    tables = (
        terms,
        np.array(pairs).reshape(-1, 2),
        rights,
        _compute_offsets(right, len(rights)),
        left,
        _compute_offsets(left, 1 + n_inputs + len(pairs)),
        np.column_stack([by_left, right[by_left]]),
        _compute_offsets(terms[:, 0], n_outputs),
        input_offsets,
        derivatives,
    )
    return order, Tables(*(torch.from_numpy(table.astype(np.int32)) for table in tables))


def _choose_pairs(monomials: np.ndarray) -> list[tuple[int, int]]:
    """Choose few pairs of inputs such that each product of three contains one of them."""
    triples = {tuple(row) for row in monomials.tolist() if row[0] >= 0}
    chosen: list[tuple[int, int]] = []
    while triples:
        counts = Counter(pair for triple in triples for pair in set(_list_pairs(triple)))
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        chosen.append(best)
        triples = {triple for triple in triples if best not in _list_pairs(triple)}
    return sorted(chosen)


def _list_pairs(triple: Iterable[int]) -> list[tuple[int, int]]:
    i, j, k = triple
    return [(i, j), (i, k), (j, k)]


def _split_term(
    monomial: list[int], pairs: list[tuple[int, int]], n_inputs: int
) -> tuple[int, int]:
    """Return the left factor of a term and the input of its right one."""
    i, j, k = monomial
    if i >= 0:
        pair, right = next(
            (pair, monomial[2 - position])
            for position, pair in enumerate(_list_pairs(monomial))
            if pair in pairs
        )
        return 1 + n_inputs + pairs.index(pair), right
    return 1 + j, k


def _put_last(terms: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Move the input of the right factor to the end of each term."""
    moved = terms.copy()
    for row, chosen in zip(moved, last, strict=True):
        position = DEGREE - list(row[:0:-1]).index(chosen)
        row[position:] = [*row[position + 1 :], chosen]
    return moved


def _list_derivatives(terms: np.ndarray, n_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """List the factors of each input: term, output, the two other inputs."""
    number = np.arange(len(terms))
    parts = []
    for position in range(1, 1 + DEGREE):
        others = np.delete(terms, position, axis=1)
        parts.append(np.column_stack([terms[:, position], number, others]))
    rows = np.concatenate(parts)
    rows = rows[rows[:, 0] >= 0]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:, 1:], _compute_offsets(rows[:, 0], n_inputs)


def _compute_offsets(numbers: np.ndarray, count: int) -> np.ndarray:
    """Return the first place of each of `count` numbers in an ascending list."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))])
