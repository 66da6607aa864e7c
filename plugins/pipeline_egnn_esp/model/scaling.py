"""Network with outputs in units of typical sizes, added to two-centre blocks.

    block = two-centre block + size(elements, shells, distance) · network

Elements of a Hamiltonian fall by five orders of magnitude from neighbours to the cutoff. The size
is the root mean square of the residual in the training structures, so that the outputs of the
network are of order 1 at all distances, and its errors are small where blocks are small.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

import torch
from torch import Tensor, nn

from pipeline_atoms.domain import Domain
from pipeline_atoms.potential.potential import compute_edge_vectors
from pipeline_core.batch import Batch
from pipeline_core.task import Outputs
from pipeline_egnn_esp.data.baselines import TwoCentre, split_batch
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.model.network import Network

KNOTS: Final = 0.5
"""Distance between two sizes in a table, Å; their logarithms are linear in between."""
_SMALLEST: Final = 1e-6
"""Least size, as a part of the largest of its kind."""
_REACH: Final = 0.5
"""Distance by which pairs may exceed the farthest labelled pair, Å."""
_NOTHING: Final = 1e-9
"""Size, eV or 1, where residuals vanish, as for overlaps of an atom with itself."""


@dataclass(frozen=True, eq=False)
class Rest:
    """Residuals of a batch: labels less two-centre blocks.

    Attributes:
        elements: Places of the elements of atoms, (n_atoms,).
        pairs: Places of the elements of receivers and senders, (n_edges, 2).
        distances: Å, (n_edges,).
        node_blocks: Residuals of atoms, NaN where there are no labels.
        edge_blocks: Residuals of edges, likewise.
    """

    elements: Tensor
    pairs: Tensor
    distances: Tensor
    node_blocks: Tensor
    edge_blocks: Tensor


class Sizes(nn.Module):
    """Typical sizes of the elements of blocks, by shells, elements and distance.

    They are 1 until `fit` is called or weights are loaded.

    Args:
        basis: Shells of each element.
        cutoff: Å.
    """

    atoms: Tensor
    edges: Tensor
    lengths: Tensor
    shells: Tensor

    def __init__(self, basis: Basis, cutoff: float) -> None:
        super().__init__()
        n_elements, n_shells = len(basis.elements), len(basis.common)
        self.n_intervals = ceil(cutoff / KNOTS)
        self.step = cutoff / self.n_intervals
        shape = (n_elements, n_elements, self.n_intervals + 1, n_shells, n_shells)
        self.register_buffer("atoms", torch.ones(n_elements, n_shells, n_shells).double())
        self.register_buffer("edges", torch.ones(shape).double())
        self.register_buffer("lengths", torch.ones(self.n_intervals + 1).double())
        widths = torch.tensor([2 * degree + 1 for degree in basis.common])
        shell = torch.arange(n_shells).repeat_interleave(widths)
        self.register_buffer("shells", shell, persistent=False)

    def find_atom_sizes(self, elements: Tensor) -> Tensor:
        """Return the sizes of blocks of atoms, (n_atoms, n_common, n_common)."""
        return self._spread_blocks(self.atoms[elements])

    def find_edge_sizes(self, elements: Tensor, distances: Tensor) -> Tensor:
        """Return the sizes of blocks of edges, (n_edges, n_common, n_common).

        Args:
            elements: Elements of receiver and sender, (n_edges, 2).
            distances: Å, (n_edges,).
        """
        first, above = self._find_knots(distances)
        table, (i, j) = self.edges.log(), elements.unbind(1)
        above = above.to(table.dtype)[:, None, None]
        between = (1 - above) * table[i, j, first] + above * table[i, j, first + 1]
        return self._spread_blocks(between.exp())

    def find_lengths(self, distances: Tensor) -> Tensor:
        """Return the size of elements of all kinds together at distances in Å; (n,) each."""
        first, above = self._find_knots(distances)
        table = self.lengths.log()
        return ((1 - above) * table[first] + above * table[first + 1]).exp()

    def fit(self, rests: Iterable[Rest]) -> None:
        """Compute the root mean square of the residuals, batch by batch.

        Raises:
            ValueError: Some edges are longer than all labelled edges.
        """
        n_shells, n_knots = self.atoms.shape[1], self.n_intervals + 1
        atoms = torch.zeros(len(self.atoms), 2, n_shells, n_shells, dtype=torch.float64)
        edges = torch.zeros(len(self.atoms) ** 2 * n_knots, *atoms.shape[1:], dtype=torch.float64)
        longest, reach = torch.zeros(2, dtype=torch.float64)
        for rest in rests:
            longest = rest.distances.amax().maximum(longest) if len(rest.distances) else longest
            labelled = rest.distances[~rest.edge_blocks.isnan().flatten(1).all(1)]
            reach = labelled.amax().maximum(reach) if len(labelled) else reach
            atoms.index_add_(0, rest.elements, self._sum_squares(rest.node_blocks))
            first, above = self._find_knots(rest.distances)
            place = (rest.pairs[:, 0] * len(self.atoms) + rest.pairs[:, 1]) * n_knots + first
            sums = self._sum_squares(rest.edge_blocks)
            edges.index_add_(0, place, sums * (1 - above)[:, None, None, None])
            edges.index_add_(0, place + 1, sums * above[:, None, None, None])
        _require_reach(float(longest), float(reach))
        # Sizes of transposed blocks, and of the two edges of a pair, are equal to the last bit.
        self.atoms.copy_(_limit_from_below(*(part + part.mT for part in atoms.unbind(1))))
        squares, counts = edges.unflatten(0, self.edges.shape[:3]).unbind(3)
        both = _fill_gaps(*(part + part.permute(1, 0, 2, 4, 3) for part in (squares, counts)))
        self.edges.copy_(_limit_from_below(*both))
        self.lengths.copy_(_limit_from_below(*(part.sum((0, 1, 3, 4)) for part in both)))

    def _find_knots(self, distances: Tensor) -> tuple[Tensor, Tensor]:
        x = distances / self.step
        first = x.long().clamp(max=self.n_intervals - 1)
        return first, x - first

    def _spread_blocks(self, sizes: Tensor) -> Tensor:
        """Expand the sizes of pairs of shells to the elements of blocks."""
        return sizes[:, self.shells][:, :, self.shells]

    def _sum_squares(self, blocks: Tensor) -> Tensor:
        """Return sum of squares and count for each pair of shells, (n, 2, n_shells, n_shells)."""
        n_shells = self.atoms.shape[1]
        member = nn.functional.one_hot(self.shells, n_shells).double()
        labelled = ~blocks.isnan()
        parts = torch.stack([blocks.nan_to_num(0).double().square(), labelled.double()])
        return torch.einsum("ka,snkl,lb->nsab", member, parts, member)


class ScaledNetwork(nn.Module):
    """The network with sizes and two-centre blocks.

    Args:
        network: Trained network.
        two_centre: Two-centre blocks, or the blocks of atoms alone if `uses_edges` is false.
        sizes: Typical sizes of the residuals.
        uses_edges: Whether two-centre blocks are added to the blocks of edges.
    """

    def __init__(
        self, network: Network, two_centre: TwoCentre, sizes: Sizes, *, uses_edges: bool
    ) -> None:
        super().__init__()
        self.network, self.two_centre, self.sizes = network, two_centre, sizes
        self.uses_edges = uses_edges

    def forward(self, batch: Batch, domain: Domain | None = None) -> Outputs:
        """Predict the blocks of all atoms and edges, hermitian to the last bit; see `Network`."""
        outputs = self.network(batch, domain)
        on_site, off_site = outputs["node_blocks"], outputs["edge_blocks"]
        with torch.no_grad(), torch.autocast(on_site.device.type, enabled=False):
            nodes, edges = self.compute_sizes(batch, len(on_site))
            own, pairs = self.compute_baseline(batch, len(on_site))
        return {
            "node_blocks": own.to(on_site.dtype) + nodes.to(on_site.dtype) * on_site,
            "edge_blocks": pairs.to(off_site.dtype) + edges.to(off_site.dtype) * off_site,
        }

    def compute_baseline(self, batch: Batch, n_own: int) -> tuple[Tensor, Tensor]:
        """Return the two-centre blocks of own atoms and of edges, without the network."""
        own = self.two_centre.predict_node_blocks(batch["atomic_numbers"][:n_own])
        if self.uses_edges:
            return own, self.two_centre.predict_edge_blocks(batch)
        return own, own.new_zeros(len(batch["edge_index"]), *own.shape[1:])

    def compute_sizes(self, batch: Batch, n_own: int) -> tuple[Tensor, Tensor]:
        """Return the sizes of the blocks of own atoms and of edges."""
        elements, pairs, distances = self._index_rows(batch)
        return self.sizes.find_atom_sizes(elements[:n_own]), self.sizes.find_edge_sizes(
            pairs, distances
        )

    def compute_units(self, batch: Batch, n_own: int) -> tuple[Tensor, Tensor]:
        """Return the units of relative errors: sizes of own atoms, and of edges at a distance.

        At large distances some kinds of pairs have only rounding errors left, which would count as
        much as the others if errors were in units of the size of their own kind.

        Returns:
            (n_own, n_common, n_common) and (n_edges, 1, 1)
        """
        elements, _, distances = self._index_rows(batch)
        of_edges = self.sizes.find_lengths(distances)
        return self.sizes.find_atom_sizes(elements[:n_own]), of_edges[:, None, None]

    def fit(self, read_batches: Callable[[], Iterable[Batch]]) -> None:
        """Fit two-centre blocks and sizes to labels in double precision; see `TwoCentre.fit`.

        Args:
            read_batches: Returns the batches again at each call.

        Raises:
            ValueError: Some edges are longer than all labelled edges.
        """
        self.two_centre.fit(read_batches())
        self.sizes.fit(rest for batch in read_batches() for rest in self._yield_rests(batch))

    def _yield_rests(self, batch: Batch) -> Iterator[Rest]:
        """Yield the residuals of some edges at a time, and of the atoms with the first ones."""
        n = len(batch["node_blocks"])
        for piece in split_batch(batch):
            elements, pairs, distances = self._index_rows(piece)
            own, off = self.compute_baseline(piece, n)
            rests = batch["node_blocks"][:n] - own, piece["edge_blocks"] - off
            yield Rest(elements[:n], pairs, distances, *rests)
            n = 0

    def _index_rows(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        elements = self.two_centre.places[batch["atomic_numbers"]]
        distances = torch.linalg.vector_norm(compute_edge_vectors(batch).detach(), dim=1)
        return elements, elements[batch["edge_index"]], distances


def _require_reach(longest: float, reach: float) -> None:
    if longest > reach + _REACH:
        raise ValueError(
            f"blocks of the training structures end at {reach:.2f} Å, but the graph has pairs up "
            f"to {longest:.2f} Å, which would be predicted without having been learned; set "
            f"graph.cutoff to {reach:.2f} or less"
        )


def _fill_gaps(squares: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Fill knots without pairs with the sums of the nearest knot that has pairs."""
    squares, filled = squares.clone(), counts.clone()
    knots = torch.arange(counts.shape[2])
    for i, j, a, b in (counts.amax(2) > 0).nonzero().tolist():
        covered = counts[i, j, :, a, b].nonzero().flatten()
        nearest = covered[(knots[:, None] - covered).abs().argmin(1)]
        for table in (squares, filled):
            table[i, j, :, a, b] = table[i, j, nearest, a, b]
    return squares, filled


def _limit_from_below(squares: Tensor, counts: Tensor) -> Tensor:
    """Return root mean squares, clamped from below to a part of the largest."""
    sizes = (squares / counts.clamp(min=torch.finfo(counts.dtype).tiny)).sqrt()
    return sizes.clamp(min=max(_SMALLEST * float(sizes.max()), _NOTHING))
