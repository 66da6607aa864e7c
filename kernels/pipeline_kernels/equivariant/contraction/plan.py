"""What a contraction evaluates, and for which atoms: prepared once per model and once per batch."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels.equivariant.clebsch_gordan import Irrep
from pipeline_kernels.equivariant.contraction import basis

CHUNK = 128  # atoms of one element that a thread takes at once
DEGREE = basis.MAX_DEGREE


class Block(NamedTuple):
    """Weights that belong together.

    Attributes:
        irrep: representation of the result.
        degree: number of factors.
        first: first of its weights.
        n_weights: number of its weights, one for each coupling.
    """

    irrep: Irrep
    degree: int
    first: int
    n_weights: int


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

    @classmethod
    def of(cls, code: Tensor, sizes: Sequence[int]) -> Self:
        """Returns views of what `Polynomial.code` has put one after the other."""
        shapes = table_shapes(*sizes)
        parts = code.split([int(np.prod(shape)) for shape in shapes])
        return cls(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))


def table_shapes(
    n_inputs: int, n_outputs: int, n_pairs: int, n_rights: int, n_terms: int, n_factors: int
) -> list[tuple[int, ...]]:
    """Returns the shape of each of the `Tables`."""
    n_lefts = 1 + n_inputs + n_pairs
    factors = [(n_terms, 1 + DEGREE), (n_pairs, 2), (n_rights, 2), (n_rights + 1,), (n_terms,)]
    transposed = [(n_lefts + 1,), (n_terms, 2), (n_outputs + 1,), (n_inputs + 1,)]
    return [*factors, *transposed, (n_factors, 1 + DEGREE)]


@dataclass(frozen=True)
class Polynomial:
    """All products of up to `correlation` inputs that rotate as the outputs.

    Attributes:
        irreps_in: representations of the inputs, one after the other.
        irreps_out: representations of the outputs.
        correlation: largest number of factors, at most 3.
        independent: whether there is a weight for each independent coupling; else for each coupling
            as in mace-torch (`use_reduced_cg=False`), though most are combinations of others.

    Raises:
        ValueError: the correlation is out of range, or an output cannot be formed.
    """

    irreps_in: tuple[Irrep, ...]
    irreps_out: tuple[Irrep, ...]
    correlation: int
    independent: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.correlation <= DEGREE:
            raise ValueError(f"correlation: expected 1 to {DEGREE}, got {self.correlation}")
        if not self.irreps_in or not self.irreps_out:
            raise ValueError("irreps_in, irreps_out: expected at least one representation")
        formed = {irrep for irrep, _, (terms, _) in self._parts if len(terms)}
        if missing := [str(irrep) for irrep in self.irreps_out if irrep not in formed]:
            raise ValueError(
                f"irreps_out: no product of up to {self.correlation} of the inputs "
                f"{'+'.join(map(str, self.irreps_in))} contains {missing}; leave them out"
            )

    @property
    def n_inputs(self) -> int:
        """Number of components of the inputs."""
        return sum(irrep.dim for irrep in self.irreps_in)

    @property
    def n_outputs(self) -> int:
        """Number of components of the outputs."""
        return sum(irrep.dim for irrep in self.irreps_out)

    @property
    def n_terms(self) -> int:
        """Number of products of inputs, counted once for each output."""
        return len(self._terms[0])

    @property
    def n_weights(self) -> int:
        """Number of weights for each element and channel."""
        return sum(block.n_weights for block in self.blocks)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Where weights lie: those of the first output with 1, 2, ... factors, then the next."""
        found, first = [], 0
        for irrep, degree, (_, values) in self._parts:
            found.append(Block(irrep, degree, first, values.shape[1]))
            first += values.shape[1]
        return tuple(found)

    @property
    def expansion(self) -> np.ndarray:
        """The coefficient of each term for each weight, `(n_terms, n_weights)` float64."""
        return self._terms[1]

    @property
    def sizes(self) -> list[int]:
        """The numbers from which the shapes of all tables follow: arguments of `table_shapes`."""
        n_pairs, n_rights, n_factors = (len(self._tables[i]) for i in (1, 2, 9))
        return [self.n_inputs, self.n_outputs, n_pairs, n_rights, self.n_terms, n_factors]

    def factors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Splits the expansion, whose rank is small, into two narrow matrices.

        Args:
            like: a tensor that has the type and the device that are wanted.

        Returns:
            `Q (n_terms, rank)` and `M (rank, n_weights)` such that `Q @ M` is the expansion.
        """
        return _factors(self, like.dtype, like.device)

    def code(self, device: torch.device) -> Tensor:
        """Returns all `Tables` one after the other, int32, on a device."""
        return _code(self, device)

    @cached_property
    def _parts(self) -> list[tuple[Irrep, int, tuple[np.ndarray, np.ndarray]]]:
        """For each block the terms (output, inputs) and their values."""
        found, row = [], 0
        for irrep in self.irreps_out:
            for degree in range(1, self.correlation + 1):
                terms, values = _polynomials(self.irreps_in, irrep, degree)
                shift = np.array([row] + [0] * degree)
                if self.independent:
                    values = basis.independent(values)
                found.append((irrep, degree, (_padded(terms + shift), values)))
            row += irrep.dim
        return found

    @cached_property
    def _terms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[int, int]]]:
        """Terms in their order, values, left factor of each, pairs among the left factors."""
        terms = np.concatenate([part[0] for _, _, part in self._parts])
        values = np.zeros((len(terms), self.n_weights))
        row = 0
        for block, (_, _, (_, part)) in zip(self.blocks, self._parts, strict=True):
            values[row : row + len(part), block.first : block.first + block.n_weights] = part
            row += len(part)
        pairs = _cover(terms[:, 1:])
        split = [_split(term[1:], pairs, self.n_inputs) for term in terms.tolist()]
        left, right = np.array(split).T
        order = np.lexsort([left, right, terms[:, 0]])
        rest = _rest(terms, right)
        return rest[order], values[order], left[order], pairs

    @cached_property
    def _tables(self) -> list[np.ndarray]:
        terms, _, left, pairs = self._terms
        # The input of the right factor is the last of a row, see `_rest`.
        rights, right = np.unique(terms[:, [0, DEGREE]], axis=0, return_inverse=True)
        n_lefts = 1 + self.n_inputs + len(pairs)
        by_left = np.argsort(left, kind="stable")
        derivatives, offsets = _derivatives(terms, self.n_inputs)
        return [
            terms,
            np.array(pairs).reshape(-1, 2),
            rights,
            _offsets(right.reshape(-1), len(rights)),
            left,
            _offsets(left, n_lefts),
            np.column_stack([by_left, right.reshape(-1)[by_left]]),
            _offsets(terms[:, 0], self.n_outputs),
            offsets,
            derivatives,
        ]


@cache
def _code(polynomial: Polynomial, device: torch.device) -> Tensor:
    flat = np.concatenate([table.reshape(-1) for table in polynomial._tables])
    return torch.from_numpy(flat.astype(np.int32)).to(device)


@cache
def _factors(
    polynomial: Polynomial, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    S = polynomial.expansion
    blocks = [S[:, b.first : b.first + b.n_weights] for b in polynomial.blocks]
    Q = np.concatenate([basis.independent(block) for block in blocks], axis=1)
    found = (torch.from_numpy(x).to(device, dtype) for x in (Q, Q.T @ S))
    return next(found), next(found)


@cache
def _polynomials(
    irreps: tuple[Irrep, ...], to: Irrep, degree: int
) -> tuple[np.ndarray, np.ndarray]:
    return basis.polynomials(basis.couplings(irreps, to, degree))


def _padded(terms: np.ndarray) -> np.ndarray:
    """Puts absent inputs, -1, between the output and the inputs."""
    return np.insert(terms, [1] * (1 + DEGREE - terms.shape[1]), -1, axis=1)


def _cover(monomials: np.ndarray) -> list[tuple[int, int]]:
    """Chooses few pairs of inputs such that each product of three contains one of them."""
    triples = {tuple(row) for row in monomials.tolist() if row[0] >= 0}
    chosen: list[tuple[int, int]] = []
    while triples:
        counts = Counter(pair for triple in triples for pair in set(_pairs(triple)))
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        chosen.append(best)
        triples = {triple for triple in triples if best not in _pairs(triple)}
    return sorted(chosen)


def _pairs(triple: Iterable[int]) -> list[tuple[int, int]]:
    i, j, k = triple
    return [(i, j), (i, k), (j, k)]


def _split(monomial: list[int], pairs: list[tuple[int, int]], n_inputs: int) -> tuple[int, int]:
    """Returns the left factor of a term and the input of its right one."""
    i, j, k = monomial
    if i >= 0:
        pair, right = next(
            (pair, monomial[2 - position])
            for position, pair in enumerate(_pairs(monomial))
            if pair in pairs
        )
        return 1 + n_inputs + pairs.index(pair), right
    return 1 + j, k


def _rest(terms: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Moves the input of the right factor to the end of each term."""
    found = terms.copy()
    for row, last in zip(found, right, strict=True):
        position = DEGREE - list(row[:0:-1]).index(last)
        row[position:] = [*row[position + 1 :], last]
    return found


def _derivatives(terms: np.ndarray, n_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists for each input what it is multiplied with: term, output, the two other inputs."""
    number = np.arange(len(terms))
    parts = []
    for position in range(1, 1 + DEGREE):
        others = np.delete(terms, position, axis=1)
        parts.append(np.column_stack([terms[:, position], number, others]))
    rows = np.concatenate(parts)
    rows = rows[rows[:, 0] >= 0]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:, 1:], _offsets(rows[:, 0], n_inputs)


def _offsets(numbers: np.ndarray, count: int) -> np.ndarray:
    """Returns where each of `count` numbers begins in an ascending order of them."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))])


@dataclass(frozen=True)
class AtomsByElement:
    """The atoms of a batch, those of an element together.

    Attributes:
        elements: the elements that occur, ascending, `(n_present,)` int64.
        order: the atoms, by element, `(n_atoms,)` int64.
        chunks: element (a row of `elements`), first and last + 1 of `order` of at most `CHUNK`
            atoms, `(n_chunks, 3)` int64.
        n_elements: one more than the last of `elements`.
    """

    elements: Tensor
    order: Tensor
    chunks: Tensor
    n_elements: int

    @classmethod
    def of(cls, element: Tensor) -> Self:
        """Sorts atoms.

        Args:
            element: element of each atom, any integers from 0, `(n_atoms,)` int64.

        Raises:
            ValueError: if they are no such integers.
        """
        if element.ndim != 1 or element.dtype != torch.int64:
            raise ValueError(
                f"element: expected (n_atoms,) int64, got {tuple(element.shape)} {element.dtype}"
            )
        elements, counts = torch.unique(element, return_counts=True)
        if len(elements) and elements[0] < 0:
            raise ValueError(f"element: expected numbers from 0, got {int(elements[0])}")
        counts_here = counts.cpu()
        n_chunks = -(-counts_here // CHUNK)
        which = torch.repeat_interleave(n_chunks)
        ends = counts_here.cumsum(0)
        within = torch.arange(len(which)) - (n_chunks.cumsum(0) - n_chunks)[which]
        first = (ends - counts_here)[which] + CHUNK * within
        chunks = torch.stack([which, first, torch.minimum(first + CHUNK, ends[which])], 1)
        order = torch.argsort(element, stable=True)
        n_elements = int(elements[-1]) + 1 if len(elements) else 0
        return cls(elements, order, chunks.to(element.device), n_elements)

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return len(self.order)
