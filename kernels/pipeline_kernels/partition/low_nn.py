"""Partitions by planes: recursive bisection for few neighbours, and grids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.partition import cpu
from pipeline_kernels.partition.coordinates import PlaneCoordinates

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

ALIKE = 0.9  # lengths whose ratio lies above this count as equal


@dataclass(frozen=True, eq=False)
class Sections:
    """Boxes of atoms on the way to a partition.

    Attributes:
        order: Atoms, section after section, `(n_atoms,)`.
        starts: Start of each section in `order`, `(n_sections + 1,)`.
        parts: Parts that each section will have, `(n_sections,)`.
    """

    order: Numbers
    starts: Numbers
    parts: Numbers

    @classmethod
    def hold_all(cls, n_atoms: int, n_parts: int) -> Sections:
        """Return the one section that holds all atoms."""
        return cls(np.arange(n_atoms), np.array([0, n_atoms]), np.array([n_parts]))

    def cut(self, ranks: Numbers, axes: Numbers, weights: Floats, children: Numbers) -> Sections:
        """Cut each section across an axis, by weight.

        Args:
            ranks: Place of each atom along each axis, `(3, n_atoms)`.
            axes: Axis of each section, `(n_sections,)`.
            weights: Weight of each atom, `(n_atoms,)`.
            children: Parts of each child, `(n_sections, n_children)`; a child of 0 parts is none.
        """
        sections = np.repeat(np.arange(len(self.parts)), np.diff(self.starts))
        keys = sections * len(self.order) + ranks[axes[sections], self.order]
        order = self.order[np.argsort(keys)]
        first_child = np.concatenate([[0], np.cumsum(np.count_nonzero(children, axis=1))])
        parts = children[children > 0]
        starts = cpu.cut(weights[order], self.starts, self.parts, parts, first_child)
        return Sections(order, starts, parts)

    def label_atoms(self) -> Numbers:
        """Return the number of each atom's section, `(n_atoms,)`."""
        labels = np.empty(len(self.order), np.int64)
        labels[self.order] = np.repeat(np.arange(len(self.parts)), np.diff(self.starts))
        return labels


def cut_by_low_nn(atoms: PlaneCoordinates, weights: Floats, n_parts: int) -> Numbers:
    """Bisect again and again, each time across the axis that adds the fewest neighbours.

    The Low-NN algorithm of the paper, appendix A. A periodic axis is first opened at the weighted
    median, which makes no part. The first cut of an axis adds one neighbour, later ones add
    ceil(r / L). Details left open by the text: lengths are perpendicular to the cuts, ties go to
    the longest axis, each half counts its own cuts, and r is the longest edge (twice the radius
    per atom that the paper calls r_cut). Any number of parts: a section of k parts is cut into
    ones of k // 2 and k - k // 2 parts, by weight in the same proportion.

    | paper  | here                   |                                     |
    |--------|------------------------|-------------------------------------|
    | l      | log2 of `n_parts`      | levels                              |
    | r_cut  | `atoms.cutoff / 2`     |                                     |
    | N_D    | `weights`              | degree of each atom                 |
    | L      | `upper - lower`        | size of a section, Å                |
    | O      | `open_axes`            | where periodic axes begin           |
    | cuts   | `cuts`                 | cuts of each axis, the opening too  |
    | NN     | `added`                | neighbours that a cut would add     |

    Args:
        atoms: The atoms.
        weights: Load of each atom, the number of its edges, `(n_atoms,)`.
        n_parts: Number of parts, at most one per atom.

    Returns:
        The part of each atom, `(n_atoms,)`.
    """
    atoms = atoms.open_axes(weights)
    ranks, sections = atoms.order_atoms(), Sections.hold_all(len(weights), n_parts)
    lower, upper = np.zeros((1, 3)), atoms.extent[None]
    cuts = np.ones((1, 3), np.int64)
    while sections.parts.max() > 1:
        lengths, halved = upper - lower, sections.parts > 1
        added = np.where(cuts == 1, 1, atoms.count_reach(lengths))
        axes = find_longest(np.where(added == added.min(1, keepdims=True), lengths, 0.0))
        halves = np.stack([sections.parts // 2, sections.parts - sections.parts // 2], 1)
        sections = sections.cut(ranks, axes, weights, halves)
        parents = np.repeat(np.arange(len(halved)), 1 + halved)
        lower, upper, cuts = lower[parents], upper[parents], cuts[parents]
        right = 1 + np.flatnonzero(halved) + np.arange(np.count_nonzero(halved))
        axes = axes[halved]
        planes = atoms.coordinates[sections.order[sections.starts[right]], axes]
        lower[right, axes] = upper[right - 1, axes] = planes
        cuts[right, axes] += 1
        cuts[right - 1, axes] += 1
    return sections.label_atoms()


def find_longest(lengths: Floats) -> Numbers:
    """Return the first axis of each section that is about as long as its longest one.

    Sections that were cut by quantiles differ a little in size and must still choose alike, as
    the neighbours of one that chose another axis are cut in two.
    """
    return np.asarray(np.argmax(lengths >= ALIKE * lengths.max(1, keepdims=True), axis=1))


def cut_by_grid(atoms: PlaneCoordinates, weights: Floats, shape: tuple[int, int, int]) -> Numbers:
    """Cut into slabs along x, each slab into columns along y, each column into boxes along z.

    Cuts are weighted quantiles: the boxes of a slab need not continue the next slab's.

    Args:
        atoms: The atoms.
        weights: Load of each atom, the number of its edges, `(n_atoms,)`.
        shape: Numbers of slabs, columns and boxes; their product is the number of parts.

    Returns:
        The part of each atom, `(n_atoms,)`.
    """
    atoms = atoms.open_axes(weights)
    ranks, sections = atoms.order_atoms(), Sections.hold_all(len(weights), int(np.prod(shape)))
    for axis, n_slabs in enumerate(shape):
        n_sections = len(sections.parts)
        children = np.repeat(sections.parts[:, None] // n_slabs, n_slabs, axis=1)
        sections = sections.cut(ranks, np.full(n_sections, axis), weights, children)
    return sections.label_atoms()
