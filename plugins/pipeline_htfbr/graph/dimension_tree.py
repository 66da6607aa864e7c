"""Dimension tree: the order in which coordinates are combined."""

from collections.abc import Sequence

from pipeline_kernels.tree import Node

Nesting = int | Sequence["Nesting"]
"""A coordinate, or a pair of nestings: [[0, 1], [2, 3]]."""


def build_balanced(coordinates: Sequence[int]) -> Nesting:
    """Divide coordinates in their order, the larger half to the left (Qiu et al., section 2).

    Six coordinates become [[[0, 1], 2], [[3, 4], 5]].
    """
    if len(coordinates) == 1:
        return coordinates[0]
    half = (len(coordinates) + 1) // 2
    return [build_balanced(coordinates[:half]), build_balanced(coordinates[half:])]


def flatten(nesting: Nesting) -> list[int]:
    """Return the coordinates of a nesting from left to right.

    Raises:
        ValueError: A level does not have two parts.
    """
    if isinstance(nesting, int):
        return [nesting]
    if len(nesting) != 2:
        raise ValueError(
            f"graph.tree: {nesting} has {len(nesting)} parts; each level of the tree is a pair"
        )
    return [*flatten(nesting[0]), *flatten(nesting[1])]


def check_nesting(nesting: Nesting, n_coordinates: int) -> Nesting:
    """Return a nesting that holds each coordinate once.

    Raises:
        ValueError: It misses or repeats a coordinate, or names one that does not exist.
    """
    leaves = flatten(nesting)
    problems = {
        "misses": sorted(set(range(n_coordinates)) - set(leaves)),
        "repeats": sorted({c for c in leaves if leaves.count(c) > 1}),
        "names, though they do not exist,": sorted(set(leaves) - set(range(n_coordinates))),
    }
    for what, coordinates in problems.items():
        if coordinates:
            raise ValueError(
                f"graph.tree {what} {', '.join(map(str, coordinates))}; each of the "
                f"{n_coordinates} coordinates, numbered from 0, stands in it once"
            )
    return nesting


def list_interior(nesting: Nesting) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the interior nodes, children before parents.

    Returns:
        For each node the slots of its children, as in `pipeline_kernels.tree.Node`, and the
        coordinates below it.
    """
    n_leaves = len(flatten(nesting))
    nodes: list[tuple[int, int, tuple[int, ...]]] = []

    def visit(part: Nesting) -> int:
        if isinstance(part, int):
            return part
        left, right = visit(part[0]), visit(part[1])
        nodes.append((left, right, tuple(flatten(part))))
        return n_leaves + len(nodes) - 1

    visit(nesting)
    return nodes


def make_nodes(nesting: Nesting, ranks: Sequence[int]) -> tuple[Node, ...]:
    """Return the interior nodes with their ranks, (n_interior,); the root's rank is 1."""
    return tuple(
        Node(left, right, rank)
        for (left, right, _), rank in zip(list_interior(nesting), ranks, strict=True)
    )
