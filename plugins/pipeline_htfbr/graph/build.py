"""Stage `graph`: the dimension tree, the leaves, and the tables of their functions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.artifacts import store
from pipeline_core.project.run import Run
from pipeline_htfbr.data.points import Coordinate, Points, read_points
from pipeline_htfbr.graph.basis import Leaf, compute_features
from pipeline_htfbr.graph.dimension_tree import Nesting, build_balanced, check_nesting
from pipeline_htfbr.options import HTGraphOptions

Floats = NDArray[np.float64]

_WIDE: Final = 2.0
"""Widest gap at the end of a period, over the widest between points, for a domain of a period."""


@dataclass(frozen=True)
class TreeStructure:
    """Tree and leaves of the surface of a run.

    Attributes:
        coordinates: The variables.
        leaves: Functions of each variable, with its domain.
        nesting: The tree.
    """

    coordinates: tuple[Coordinate, ...]
    leaves: tuple[Leaf, ...]
    nesting: Nesting

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values; `from_dict` is the inverse."""
        return {
            "coordinates": [asdict(one) for one in self.coordinates],
            "leaves": [asdict(leaf) for leaf in self.leaves],
            "nesting": self.nesting,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the structure from the output of `to_dict`."""
        coordinates = tuple(Coordinate(**one) for one in content["coordinates"])
        leaves = tuple(Leaf(**one) for one in content["leaves"])
        return cls(coordinates, leaves, content["nesting"])


def write_structure(run: Run) -> dict[str, Any]:
    """Choose tree and leaves, tabulate the functions at all points; write `run.graph`.

    Raises:
        ValueError: Tree, basis or degree do not match the coordinates.
    """
    options = run.get_section("graph", HTGraphOptions)
    points = read_points(run.data)
    d = len(points.coordinates)
    nesting = check_nesting(options.tree or build_balanced(range(d)), d)
    structure = TreeStructure(points.coordinates, make_leaves(points, options), nesting)
    table = compute_features(structure.leaves, torch.from_numpy(points.x)).numpy()
    with store.create(run.graph, "graph", run.make_provenance("graph")) as file:
        file.attrs["structure"] = json.dumps(structure.to_dict())
        file.create_dataset("features", data=table)
    return {
        "coordinates": d,
        "functions": [leaf.count for leaf in structure.leaves],
        "tree": json.dumps(nesting),
    }


def read_structure(run: Run) -> TreeStructure:
    """Read tree and leaves.

    Raises:
        ValueError: `run.graph` is missing or damaged.
    """
    with store.open_artifact(run.graph, "graph") as file, store.explain_damage(run.graph):
        return TreeStructure.from_dict(json.loads(file.attrs["structure"]))


def read_features(run: Run) -> torch.Tensor:
    """Read the functions of all leaves at all points, (n_features, n) float64."""
    with store.open_artifact(run.graph, "graph") as file, store.explain_damage(run.graph):
        table = file["features"]
        assert isinstance(table, h5py.Dataset)
        return torch.from_numpy(np.asarray(table[:]))


def make_leaves(points: Points, options: HTGraphOptions) -> tuple[Leaf, ...]:
    """Return the functions of each coordinate.

    Raises:
        ValueError: The length of a list is not the number of coordinates, a periodic family is
            chosen for a coordinate without period, or all points share a value.
    """
    d = len(points.coordinates)
    degrees = _spread_over_leaves(options.degree, d, "graph.degree")
    families = _spread_over_leaves(options.basis, d, "graph.basis")
    leaves = []
    for coordinate, x, degree, family in zip(
        points.coordinates, points.x.T, degrees, families, strict=True
    ):
        chosen = family
        if family == "auto":
            chosen = "fourier" if coordinate.period else "chebyshev"
        if chosen in ("cosine", "fourier") and coordinate.period is None:
            raise ValueError(
                f"graph.basis: {chosen} for {coordinate.name}, which has no period; declare the "
                "period in the dataset, or choose chebyshev or legendre"
            )
        lower, upper = _choose_domain(coordinate, np.unique(x), options.margin)
        leaves.append(
            Leaf(family=chosen, degree=degree, lower=lower, upper=upper, period=coordinate.period)
        )
    return tuple(leaves)


def _choose_domain(coordinate: Coordinate, x: Floats, margin: float) -> tuple[float, float]:
    """Return the bounds of a coordinate with points at x, in ascending order.

    If points lie all around a period, no gap is much wider than the others: then the
    domain is the whole period.
    """
    least, largest = float(x[0]), float(x[-1])
    if coordinate.period is not None and coordinate.upper is None and len(x) > 1:
        lower = least if coordinate.lower is None else coordinate.lower
        gap = lower + coordinate.period - largest
        if 0 < gap <= _WIDE * float(np.diff(x).max()):
            return lower, lower + coordinate.period
    room = margin * (largest - least)
    lower = least - room if coordinate.lower is None else coordinate.lower
    upper = largest + room if coordinate.upper is None else coordinate.upper
    if not lower < upper:
        raise ValueError(
            f"coordinate {coordinate.name} is {least:g} at all points, so nothing can be learned "
            "about it; leave it out of the dataset"
        )
    return lower, upper


def _spread_over_leaves(value: Any, count: int, key: str) -> Sequence[Any]:
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError(
            f"{key}: {len(value)} values for {count} coordinates; give one for each, or one for all"
        )
    return value
