"""Plan of a contraction: terms once per model, atoms once per batch."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.equivariant.clebsch_gordan import Irrep
from pipeline_kernels.equivariant.contraction import basis
from pipeline_kernels.equivariant.contraction.tables import DEGREE, Tables, arrange

CHUNK = 128  # atoms of one element that a thread takes at once


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


@dataclass(frozen=True)
class Polynomial:
    """All products of up to `correlation` inputs that rotate as the outputs.

    Weights have another order than in `SymmetricContraction` of mace-torch: there, each output
    has `weights_max` for the most factors, `weights.0` for one less and so on, and one weight of no
    effect where couplings are absent.

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
        return len(self._arranged[0])

    @property
    def n_weights(self) -> int:
        """Number of weights for each element and channel."""
        return sum(block.n_weights for block in self.blocks)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Offsets of weights: the first output with 1, 2, ... factors, then the next."""
        blocks, first = [], 0
        for irrep, degree, (_, values) in self._parts:
            blocks.append(Block(irrep, degree, first, values.shape[1]))
            first += values.shape[1]
        return tuple(blocks)

    @property
    def expansion(self) -> np.ndarray:
        """The coefficient of each term for each weight, `(n_terms, n_weights)` float64."""
        return self._arranged[0]

    @property
    def sizes(self) -> list[int]:
        """The numbers from which the shapes of all tables follow, see `Tables`."""
        return self._arranged[1].sizes

    def factorize(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Split the expansion, whose rank is small, into two narrow matrices.

        Args:
            like: a tensor that has the type and the device that are wanted.

        Returns:
            `Q (n_terms, rank)` and `M (rank, n_weights)` such that `Q @ M` is the expansion.
        """
        return _factorize(self, like.dtype, like.device)

    def make_code(self, device: torch.device) -> Tensor:
        """Return all `Tables` one after the other, int32, on a device."""
        return _make_code(self, device)

    @cached_property
    def _parts(self) -> list[tuple[Irrep, int, tuple[np.ndarray, np.ndarray]]]:
        """For each block the terms (output, inputs) and their values."""
        parts, row = [], 0
        for irrep in self.irreps_out:
            for degree in range(1, self.correlation + 1):
                terms, values = _collect_terms(self.irreps_in, irrep, degree)
                shift = np.array([row] + [0] * degree)
                if self.independent:
                    values = basis.orthonormalize(values)
                parts.append((irrep, degree, (_pad_terms(terms + shift), values)))
            row += irrep.dim
        return parts

    @cached_property
    def _arranged(self) -> tuple[np.ndarray, Tables]:
        """The coefficient of each term for each weight, and the tables, in the same order."""
        from scipy.linalg import block_diag

        terms = np.concatenate([part for _, _, (part, _) in self._parts])
        values = block_diag(*(part for _, _, (_, part) in self._parts))
        order, tables = arrange(terms, self.n_inputs, self.n_outputs)
        return values[order], tables


@cache
def _make_code(polynomial: Polynomial, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # kept, and autograd refuses tensors of inference
        return polynomial._arranged[1].code.to(device)


@cache
def _factorize(
    polynomial: Polynomial, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    S = polynomial.expansion
    blocks = [S[:, b.first : b.first + b.n_weights] for b in polynomial.blocks]
    Q = np.concatenate([basis.orthonormalize(block) for block in blocks], axis=1)
    with torch.inference_mode(False):
        return torch.from_numpy(Q).to(device, dtype), torch.from_numpy(Q.T @ S).to(device, dtype)


@cache
def _collect_terms(
    irreps: tuple[Irrep, ...], to: Irrep, degree: int
) -> tuple[np.ndarray, np.ndarray]:
    return basis.collect_terms(basis.compute_couplings(irreps, to, degree))


def _pad_terms(terms: np.ndarray) -> np.ndarray:
    """Put absent inputs, -1, between the output and the inputs."""
    return np.insert(terms, [1] * (1 + DEGREE - terms.shape[1]), -1, axis=1)


@dataclass(frozen=True)
class AtomsByElement:
    """The atoms of a batch, grouped by element.

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
        """Sort atoms.

        Args:
            element: element of each atom, any integers from 0, `(n_atoms,)` int64.

        Raises:
            ValueError: if they are no such integers.
        """
        check_tensor("element", element, ("n_atoms",), (torch.int64,))
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
