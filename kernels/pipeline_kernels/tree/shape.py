"""The shape of a dimension tree: which nodes there are, their ranks, where their numbers lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Self

from torch import Tensor


@dataclass(frozen=True)
class Node:
    """An interior node.

    Children are slots: slot `mu < n_leaves` is leaf `mu`, slot `n_leaves + i` is interior node `i`.

    Attributes:
        left: slot of the left child.
        right: slot of the right child.
        rank: number of functions that the node passes on.
    """

    left: int
    right: int
    rank: int


@dataclass(frozen=True)
class TreeShape:
    """A binary tree over dimensions, and where each part lies in the arrays of a contraction.

    | array       | shape             | content                                                   |
    |-------------|-------------------|-----------------------------------------------------------|
    | `features`  | `(n_features, n)` | functions of leaf 0, then of leaf 1, ...                  |
    | `transfers` | `(n_transfers,)`  | `B_t` of node 0, then of node 1, ..., each flattened      |
    |             |                   | from `(rank_left, rank_right, rank)`                      |
    | `inner`     | `(n_inner, n)`    | values of node 0, then of node 1, ..., without the root   |

    Attributes:
        leaf_ranks: number of functions of each leaf.
        nodes: interior nodes, children before parents; the last is the root, of rank 1.

    Raises:
        ValueError: the nodes do not form one tree over all leaves.
    """

    leaf_ranks: tuple[int, ...]
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        d, children = self.n_leaves, [c for node in self.nodes for c in (node.left, node.right)]
        if d < 2 or len(self.nodes) != d - 1 or sorted(children) != list(range(2 * d - 2)):
            raise ValueError(
                f"nodes: expected a binary tree in which each of {d} leaves and each interior node "
                f"but the last has one parent, got the children {children}"
            )
        if any(max(node.left, node.right) >= d + i for i, node in enumerate(self.nodes)):
            raise ValueError("nodes: expected children before their parents")
        if min(self.ranks) < 1 or self.nodes[-1].rank != 1:
            raise ValueError(
                f"ranks: expected at least 1 and 1 at the root, got leaves {self.leaf_ranks} and "
                f"nodes {tuple(node.rank for node in self.nodes)}"
            )

    @property
    def n_leaves(self) -> int:
        """Number of dimensions."""
        return len(self.leaf_ranks)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Rank of every slot."""
        return (*self.leaf_ranks, *(node.rank for node in self.nodes))

    @property
    def n_features(self) -> int:
        """Functions of all leaves together."""
        return sum(self.leaf_ranks)

    @property
    def n_inner(self) -> int:
        """Functions of all interior nodes but the root."""
        return sum(node.rank for node in self.nodes[:-1])

    @property
    def n_transfers(self) -> int:
        """Entries of all transfer tensors together."""
        return self.offsets[-1]

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Offsets of the transfer tensors of nodes, and the end of the last one."""
        sizes = (left * right * rank for left, right, rank in self.tensor_shapes)
        return tuple(accumulate(sizes, initial=0))

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """First row of every slot: of leaves in `features`, of inner nodes in `inner`."""
        rows, start = [], 0
        for slot, rank in enumerate(self.ranks):
            start = 0 if slot == self.n_leaves else start
            rows.append(start)
            start += rank
        return tuple(rows)

    @cached_property
    def tensor_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """Shape of the transfer tensor of each node: left rank, right rank, own rank."""
        return tuple((self.ranks[n.left], self.ranks[n.right], n.rank) for n in self.nodes)

    def split_transfers(self, transfers: Tensor) -> list[Tensor]:
        """Return the transfer tensors as views, one per node, `(rank_left, rank_right, rank)`."""
        parts = transfers.split([a * b * c for a, b, c in self.tensor_shapes])
        return [part.view(shape) for part, shape in zip(parts, self.tensor_shapes, strict=True)]

    def encode(self) -> list[int]:
        """Return the shape as integers, as an operator takes it; `decode` is the inverse."""
        nodes = [number for n in self.nodes for number in (n.left, n.right, n.rank)]
        return [self.n_leaves, *self.leaf_ranks, *nodes]

    @classmethod
    def decode(cls, code: Sequence[int]) -> Self:
        """Return the shape from the output of `encode`."""
        d = code[0]
        nodes = [Node(*code[i : i + 3]) for i in range(1 + d, len(code), 3)]
        return cls(tuple(code[1 : 1 + d]), tuple(nodes))
