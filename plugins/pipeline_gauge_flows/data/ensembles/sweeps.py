"""Heat-bath and overrelaxation sweeps over the links of one configuration (Wilson action).

Links of one direction at sites of one colour do not share a plaquette, so that they are
updated together. There are two colours, like those of a checkerboard, or three where an extent is
odd. Random numbers are tied to links and sweeps: the result does not depend on threads.
"""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import count
from typing import Final

import numpy as np
from numba import uint32
from numpy.typing import NDArray

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.ensembles.philox import Key, make_key
from pipeline_gauge_flows.data.ensembles.subgroups import (
    Tables,
    draw_heatbath_link,
    multiply_dagger,
    reflect,
    reunitarize,
    sum_staples,
)
from pipeline_kernels.jit import njit
from pipeline_kernels.threads import run_in_threads

Links = NDArray[np.complex128]
Sites = NDArray[np.int64]
Body = Callable[[Links, Tables, int, Sites], None]

_PIECE: Final = 512
"""Links per task of a thread."""


class Sweeps:
    """Updates of links in place.

    Args:
        action: A Wilson action.
        seed: Seed of all random numbers.
        number: Number of the Markov chain; each chain has its own random numbers.
        threads: Number of threads.
    """

    def __init__(self, action: GaugeAction, seed: int, number: int = 0, threads: int = 1) -> None:
        assert action.rectangle_weight == 0, "rectangles contain several links of one colour"
        self.lattice, self.threads = action.lattice, threads
        self._key, self._sweep = make_key(seed, number), 0
        dimension = self.lattice.dimension
        weights = np.zeros((dimension, dimension))
        for (mu, nu), weight in zip(self.lattice.planes, action.weights.tolist(), strict=True):
            weights[mu, nu] = weights[nu, mu] = weight
        neighbours = (self.lattice.forward.numpy(), self.lattice.backward.numpy())
        self._tables = (weights, *neighbours)

    @cached_property
    def colours(self) -> list[Sites]:
        """Sites of each colour; neighbours have different colours."""
        coordinates = self.lattice.coordinates.numpy()
        extents = np.array(self.lattice.extents)
        odd = extents % 2 == 1
        # Two colours do not suffice around an odd ring: its last site gets the third.
        single = np.where(odd & (coordinates == extents - 1), 2, coordinates % 2)
        colour = single.sum(axis=1) % (3 if odd.any() else 2)
        return [np.flatnonzero(colour == c) for c in range(colour.max() + 1)]

    def update_heatbath(self, links: Links) -> None:
        """Redraw every link from its distribution given the others, links (D, V, N, N)."""
        self._update_all(partial(_draw_heatbath_links, self._key, np.uint32(self._sweep)), links)
        self._sweep += 1

    def update_overrelaxed(self, links: Links) -> None:
        """Move every link at constant action, links (D, V, N, N)."""
        self._update_all(_reflect_links, links)

    def _update_all(self, body: Body, links: Links) -> None:
        for sites in self.colours:
            for mu in range(self.lattice.dimension):
                numbers = count()

                def work(
                    sites: Sites = sites, mu: int = mu, numbers: Iterator[int] = numbers
                ) -> None:
                    while (begin := next(numbers) * _PIECE) < len(sites):
                        piece = sites[begin : begin + _PIECE]
                        body(links, self._tables, mu, piece)

                run_in_threads(work, min(self.threads, -(-len(sites) // _PIECE)))


@njit(nogil=True, fastmath={"contract"})
def _draw_heatbath_links(
    key: Key, sweep: np.uint32, links: Links, tables: Tables, mu: int, sites: Sites
) -> None:
    n = links.shape[2]
    total, first = np.empty((n, n), np.complex128), np.empty((n, n), np.complex128)
    room = (first, np.empty((n, n), np.complex128))
    for x in sites:
        sum_staples(links, tables, mu, x, total, room)
        multiply_dagger(links[mu, x], total, first)
        stream = (uint32(mu * links.shape[1] + x), sweep, uint32(0))
        draw_heatbath_link(links[mu, x], first, stream, key)
        reunitarize(links[mu, x])


@njit(nogil=True, fastmath={"contract"})
def _reflect_links(links: Links, tables: Tables, mu: int, sites: Sites) -> None:
    n = links.shape[2]
    total, first = np.empty((n, n), np.complex128), np.empty((n, n), np.complex128)
    room = (first, np.empty((n, n), np.complex128))
    for x in sites:
        sum_staples(links, tables, mu, x, total, room)
        multiply_dagger(links[mu, x], total, first)
        reflect(links[mu, x], first)
