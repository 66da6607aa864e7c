"""Two-centre baseline: Slater-Koster tables of matrix blocks as functions of the distance alone.

In the frame of its edge, the block of two shells is diagonal in the order m if it depends on the
vector between the atoms alone, and equal for m and -m (J. C. Slater and G. F. Koster, Phys. Rev.
94, 1498 (1954)). For each pair of elements and shells and each |m| a table is a cubic spline of
the distance, fitted to training structures by least squares. The on-site block of an atom is the
mean of its element, which spherical symmetry makes a multiple of 1 for shells of equal degree.

For overlaps this is exact but for the error of the spline. For Hamiltonians it is the baseline that
a model has to beat: it ignores the surroundings of a pair.
"""

from collections.abc import Iterable, Iterator
from math import ceil
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_atoms.potential.elements import number_elements
from pipeline_atoms.potential.potential import compute_edge_vectors
from pipeline_core.batch import Batch
from pipeline_egnn_esp.data.basis import Basis
from pipeline_kernels.equivariant.wigner import compute_edge_frames, count_entries

_PIECE: Final = 2**15
"""Edges whose blocks are rotated at a time."""
_OF_EDGES: Final = ("edge_index", "edge_shift", "edge_sample", "edge_blocks")
SPACING: Final = 0.25
"""Distance of the knots of the splines, Å."""
_STIFFNESS: Final = 1e-9
"""Weight of squared second differences of the coefficients, beside the mean weight of a spline; it
continues a table through gaps between distances of the training structures."""
_WEIGHT_WITHIN: Final = 1e-12
"""Weight of squared coefficients, which determines what a single distance leaves undetermined; a
line through a gap of 2 Å stays a line."""
_WEIGHT_BEYOND: Final = 1e-9
"""The same for knots beyond all pairs, which fall to zero within half an Å: integrals end there."""


class TwoCentre(nn.Module):
    """Two-centre tables: blocks of atoms by their element, of edges by elements and distance.

    They are zero until `fit` is called or weights are loaded.

    Args:
        basis: Shells of each element.
        cutoff: Distance at which the tables end, Å.
    """

    atoms: Tensor
    tables: Tensor
    pattern: Tensor
    places: Tensor
    entries: Tensor

    def __init__(self, basis: Basis, cutoff: float) -> None:
        super().__init__()
        self.basis, self.cutoff = basis, cutoff
        self.n_intervals = ceil(cutoff / SPACING)
        n_elements, n = len(basis.elements), basis.n_common
        pattern, self._mirror, self._sign = _make_pattern(basis.common)
        shape = (n_elements, n_elements, self.n_intervals + 3, len(pattern))
        self.register_buffer("atoms", torch.zeros(n_elements, n, n, dtype=torch.float64))
        self.register_buffer("tables", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("pattern", pattern, persistent=False)
        self.register_buffer("places", number_elements(basis.elements), persistent=False)
        self.register_buffer("entries", number_entries(basis.common), persistent=False)

    def predict_node_blocks(self, atomic_numbers: Tensor) -> Tensor:
        """Return the blocks of atoms, (n_atoms, n_common, n_common)."""
        return self.atoms[self.places[atomic_numbers]]

    def predict_edge_blocks(self, batch: Batch) -> Tensor:
        """Return blocks of edges, (n_edges, n_common, n_common); reverse edges have transposes."""
        return torch.cat([self._orient_blocks(piece) for piece in split_batch(batch)])

    def _orient_blocks(self, batch: Batch) -> Tensor:
        vectors, elements, turned = self._orient(batch)
        numbers, weights = self._evaluate_splines(vectors)
        rows = self.tables.flatten(0, 2)  # (n_element_pairs * n_splines, n_tables)
        pair = elements[:, 0] * len(self.atoms) + elements[:, 1]
        chosen = rows[(pair * self.tables.shape[2])[:, None] + numbers]  # (n_edges, 4, n_tables)
        values = (weights.to(rows.dtype)[:, :, None] * chosen).sum(1)
        blocks = (values @ self.pattern.to(rows.dtype)).unflatten(1, self.atoms.shape[1:])
        D = make_frames(vectors, self.basis, self.entries, rows.dtype)
        blocks = D.mT @ blocks @ D
        return torch.where(turned[:, None, None], blocks.mT, blocks)

    def fit(self, batches: Iterable[Batch]) -> None:
        """Fit all tables to labels.

        Args:
            batches: Structures with their graph and the labels `node_blocks` and `edge_blocks`, NaN
                where there are none; in double precision. In parts of structures the first atoms
                have labels, and receive the edges.
        """
        atoms, counts = torch.zeros_like(self.atoms), torch.zeros(len(self.atoms))
        n_elements, _, n_splines, n_tables = self.tables.shape
        gram = torch.zeros(n_elements**2, n_splines, n_splines, dtype=torch.float64)
        right = torch.zeros(n_elements**2, n_splines, n_tables, dtype=torch.float64)
        for batch in batches:
            place = self.places[batch["atomic_numbers"]][: len(batch["node_blocks"])]
            atoms.index_add_(0, place, batch["node_blocks"].double().nan_to_num(0))
            counts += torch.bincount(place, minlength=len(counts))
            for piece in split_batch(batch):
                self._add(piece, gram, right)
        self.atoms.copy_(_average_over_axes(self.basis, atoms / counts.clamp(min=1)[:, None, None]))
        # A pair and the same pair seen from its other end have one table.
        gram, right = gram.unflatten(0, (n_elements, -1)), right.unflatten(0, (n_elements, -1))
        gram, right = gram + gram.transpose(0, 1), right + self._mirror_tables(right)
        pairs = zip(gram.flatten(0, 1), right.flatten(0, 1), strict=True)
        tables = torch.stack([_solve(*pair) for pair in pairs]).view_as(self.tables)
        self.tables.copy_(0.5 * (tables + self._mirror_tables(tables)))  # alike to the last bit

    def _mirror_tables(self, tables: Tensor) -> Tensor:
        """Return tables as seen from the other end, (n_elements, n_elements, n_splines, n)."""
        return tables.transpose(0, 1)[..., self._mirror] * self._sign

    def _add(self, batch: Batch, gram: Tensor, right: Tensor) -> None:
        """Add the edges of a batch to the normal equations of each pair of elements."""
        vectors, elements, turned = self._orient(batch)
        labels = batch["edge_blocks"].double()
        labelled = ~labels.isnan().flatten(1).all(1)
        D = make_frames(vectors, self.basis, self.entries, labels.dtype)
        labels = torch.where(turned[:, None, None], labels.mT, labels).nan_to_num(0)
        in_frame = (D @ labels @ D.mT).flatten(1)
        values = in_frame @ (self.pattern / self.pattern.sum(1, keepdim=True)).T
        numbers, weights = self._evaluate_splines(vectors)
        design = weights.new_zeros(len(vectors), gram.shape[1]).scatter_(1, numbers, weights)
        pair = elements[:, 0] * len(self.atoms) + elements[:, 1]
        for number in pair[labelled].unique().tolist():
            rows = labelled & (pair == number)
            gram[number] += design[rows].T @ design[rows]
            right[number] += design[rows].T @ values[rows]

    def _orient(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Give an edge and its reverse one direction, so that their blocks agree to the last bit.

        Returns:
            Vectors (n_edges, 3), elements (n_edges, 2), and mask of reversed edges, (n_edges,).
        """
        vectors = compute_edge_vectors(batch).detach().double()
        x, y, z = vectors.unbind(1)
        turned = (x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))
        elements = self.places[batch["atomic_numbers"]][batch["edge_index"]]
        return (
            torch.where(turned[:, None], -vectors, vectors),
            torch.where(turned[:, None], elements.flip(1), elements),
            turned,
        )

    def _evaluate_splines(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers and values of the four cubic B-splines at each distance, (n_edges, 4)."""
        x = torch.linalg.vector_norm(vectors, dim=1) * (self.n_intervals / self.cutoff)
        first = x.long().clamp(max=self.n_intervals - 1)
        u = x - first
        v = 1 - u
        values = [v**3, 3 * u**3 - 6 * u**2 + 4, 3 * v**3 - 6 * v**2 + 4, u**3]
        numbers = first[:, None] + torch.arange(4, device=first.device)
        return numbers, torch.stack(values, 1) / 6


def make_frames(vectors: Tensor, basis: Basis, entries: Tensor, dtype: torch.dtype) -> Tensor:
    """Return rotations of orbitals to the frame of each edge, (n_edges, n_common, n_common).

    Args:
        vectors: Å, (n_edges, 3).
        basis: Shells of each element.
        entries: From `number_entries`.
        dtype: Type of the rotations.
    """
    frames = compute_edge_frames(vectors, basis.lmax, dtype)
    return nn.functional.pad(frames, (0, 1))[:, entries]


def split_batch(batch: Batch) -> Iterator[Batch]:
    """Yield a batch with some of its edges at a time, at least once; the atoms are always there."""
    for begin in range(0, max(1, len(batch["edge_index"])), _PIECE):
        yield take_edges(batch, slice(begin, begin + _PIECE))


def take_edges(batch: Batch, part: slice | Tensor) -> Batch:
    """Return a batch with some of its edges, and all atoms."""
    return {**batch, **{name: batch[name][part] for name in _OF_EDGES if name in batch}}


def fit_two_centre(basis: Basis, cutoff: float, batches: Iterable[Batch]) -> TwoCentre:
    """Return tables fitted to labels; see `TwoCentre.fit`."""
    tables = TwoCentre(basis, cutoff)
    tables.fit(batches)
    return tables


def _make_pattern(shells: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the places of the tables in a block, and their signs when an edge is reversed.

    Returns:
        (n_tables, n_common²), 1 where a block in the frame of its edge has a table; the table of
        the pair in opposite order, (n_tables,), and its sign, (n_tables,).
    """
    sizes = np.array([2 * degree + 1 for degree in shells])
    begins, n = np.cumsum(sizes) - sizes, int(sizes.sum())
    keys = [
        (a, b, m)
        for a, i in enumerate(shells)
        for b, j in enumerate(shells)
        for m in range(min(i, j) + 1)
    ]
    pattern = torch.zeros(len(keys), n, n, dtype=torch.float64)
    for table, (a, b, m) in enumerate(keys):
        for order in {m, -m}:
            pattern[table, begins[a] + shells[a] + order, begins[b] + shells[b] + order] = 1
    mirror = torch.tensor([keys.index((b, a, m)) for a, b, m in keys])
    sign = torch.tensor([(-1.0) ** (shells[a] + shells[b]) for a, b, _ in keys])
    return pattern.flatten(1), mirror, sign.double()


def number_entries(shells: tuple[int, ...]) -> Tensor:
    """Return the place of each element of the matrix of all shells in frames, (n, n).

    Zeros of the matrix have the place behind the last entry.
    """
    n = sum(2 * degree + 1 for degree in shells)
    places = torch.full((n, n), count_entries(max(shells)))
    begin = 0
    for degree in shells:
        d = 2 * degree + 1
        first = count_entries(degree - 1) if degree else 0
        places[begin : begin + d, begin : begin + d] = first + torch.arange(d * d).view(d, d)
        begin += d
    return places


def _average_over_axes(basis: Basis, blocks: Tensor) -> Tensor:
    """Return the part of hermitian blocks of atoms that no rotation changes."""
    kept = torch.zeros_like(blocks)
    ends = np.cumsum([2 * degree + 1 for degree in basis.common])
    for a, i in zip(basis.common, ends, strict=True):
        for b, j in zip(basis.common, ends, strict=True):
            if a == b:
                rows, columns = slice(i - 2 * a - 1, i), slice(j - 2 * a - 1, j)
                mean = blocks[:, rows, columns].diagonal(dim1=1, dim2=2).mean(1)
                kept[:, rows, columns] = mean[:, None, None] * torch.eye(2 * a + 1)
    return 0.5 * (kept + kept.mT)


def _solve(gram: Tensor, right: Tensor) -> Tensor:
    """Return the coefficients of the splines of one pair of elements, (n_splines, n_tables)."""
    if not gram.any():
        return torch.zeros_like(right)
    weights = gram.diagonal()
    differences = torch.eye(len(gram), dtype=gram.dtype).diff(n=2, dim=0)
    small = torch.full_like(weights, _WEIGHT_WITHIN)
    small[int(weights.nonzero().max()) + 1 :] = _WEIGHT_BEYOND
    kept = _STIFFNESS * differences.T @ differences + small.diag()
    coefficients: Tensor = torch.linalg.solve(gram + weights.mean() * kept, right)
    return coefficients
