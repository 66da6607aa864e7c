"""Edge terms of a compiled MACE besides weights: densities of neighbours, and repulsion."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_kernels.hermite import differentiate_interpolation, interpolate
from pipeline_kernels.message import Segments, segment_sum
from pipeline_mace.model.basis import PairRepulsion


class Densities:
    """Densities of neighbours, the divisors of messages, in all layers.

    Args:
        table: Splines of the density of an edge, (n_tables 3 n_knots, n_layers).
        places: Places of the edges, in intervals from the first knot of their table, (n_edges,).
        kinds: Number of the table of each edge, (n_edges,); None if there is one.
        n_knots: Number of knots of a table.
        receivers: Receivers of the edges.
    """

    def __init__(
        self, table: Tensor, places: Tensor, kinds: Tensor | None, n_knots: int, receivers: Segments
    ) -> None:
        self._table, self._receivers = table, receivers
        self._x = places.double() if kinds is None else places.double() + kinds * n_knots
        (of_edges,) = interpolate(self._x, table, [table.shape[1]])
        self._sums = 1 + segment_sum(of_edges, receivers)

    def divisors(self, layer: int) -> Tensor:
        """Return the divisors of a layer, (n_atoms, 1, 1)."""
        return self._sums[:, layer, None, None]

    def reverse(self, by_divisors: Sequence[Tensor]) -> Tensor:
        """Return derivatives by the places, given those by divisors of all layers, (n_atoms,)."""
        of_edges = torch.stack([*by_divisors], dim=1).index_select(0, self._receivers.index)
        by_x = differentiate_interpolation([of_edges], self._x, self._table)
        return by_x.to(of_edges.dtype)


def repel(
    repulsion: PairRepulsion, distance: Tensor, batch: Batch, factors: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the repulsion of pairs, and its derivatives.

    Args:
        repulsion: Repulsion of the network.
        distance: Lengths of edges, (n_edges,) Å.
        batch: The structures.
        factors: Factors on the energies of atoms, (n_atoms,).

    Returns:
        Energies of atoms, (n_atoms,), and their derivatives by distances, (n_edges,).
    """
    receiver, sender = batch["edge_index"].unbind(1)
    numbers = batch["atomic_numbers"]
    reach = repulsion.add_radii((numbers[receiver], numbers[sender]), distance.dtype)
    near = (distance < reach).nonzero()[:, 0]  # most edges are longer, without repulsion
    atoms = receiver[near]
    with torch.enable_grad():
        r = distance[near].requires_grad_()
        pairs = repulsion(r, (numbers[atoms], numbers[sender[near]])) * factors[atoms]
        (slopes,) = torch.autograd.grad(pairs.sum(), r)
    by_distance = torch.zeros_like(distance).index_copy_(0, near, slopes)
    return torch.zeros_like(factors).index_add_(0, atoms, pairs.detach()), by_distance
