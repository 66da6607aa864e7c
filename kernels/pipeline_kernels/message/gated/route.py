"""Inputs of gated messages: rows of tables and factors, and parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Self

from torch import Tensor

from pipeline_kernels.message.segments import Segments, segment_sum

N_TABLES: Final = 3


@dataclass(frozen=True)
class Route:
    """Rows that a set of messages reads, and rows to which it is added.

    Attributes:
        tables: For each of three tables the row that a message reads; None for a table that has one
            row a message.
        factors: Row of the factors that multiplies each message, or None for no factors.
        targets: Row that each message is added to, or None if messages stay apart.
        n_messages: Number of messages.
    """

    tables: tuple[Segments | None, Segments | None, Segments | None]
    factors: Segments | None
    targets: Segments | None
    n_messages: int

    @property
    def n_targets(self) -> int:
        """Number of rows that messages are added to."""
        return self.n_messages if self.targets is None else self.targets.n_segments

    @property
    def plans(self) -> tuple[Segments | None, ...]:
        """All plans: of the tables, the factors and the targets."""
        return *self.tables, self.factors, self.targets

    def encode(self) -> tuple[list[Tensor], list[int]]:
        """Return tensors and numbers, as an operator takes them; `decode` is the inverse.

        Returns:
            The tensors of the existing plans; and the number of messages, followed by 1 or 0 if
            there is a plan or not for each table, for factors and for targets.
        """
        present = [plan for plan in self.plans if plan is not None]
        lists = [x for plan in present for x in (plan.index, plan.order, plan.offsets)]
        return lists, [self.n_messages, *(int(plan is not None) for plan in self.plans)]

    @classmethod
    def decode(cls, lists: Sequence[Tensor], code: Sequence[int]) -> Self:
        """Return the route from the output of `encode`."""
        n_messages, *present = code
        tensors = iter(lists)
        first, second, third, factors, targets = (
            Segments(*islice(tensors, 3)) if there else None for there in present
        )
        return cls((first, second, third), factors, targets, n_messages)


class Inputs(NamedTuple):
    """The tensors that messages are computed from, or derivatives by them.

    Attributes:
        tables: (n_t, 2 H) each; with a projection the last has features (n_2, K).
        factors: (n_factors, D) or None.
        projection: (2, K, H), map of the features of the last table, or None for none.
        gain: (2, 1, D).
        shift: (2, 1, D).
        weight: (2, H, D) or None for no hidden layer.
        bias: (2, 1, D) or None.
    """

    tables: Sequence[Tensor]
    factors: Tensor | None
    projection: Tensor | None
    gain: Tensor
    shift: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None

    @property
    def parameters(self) -> list[Tensor]:
        """Projection, gain, shift, weight and bias, those that there are."""
        parameters = self.projection, self.gain, self.shift, self.weight, self.bias
        return [parameter for parameter in parameters if parameter is not None]

    @property
    def data(self) -> list[Tensor]:
        """Tables, and factors if there are any."""
        return [*self.tables] if self.factors is None else [*self.tables, self.factors]

    @property
    def tensors(self) -> list[Tensor]:
        """All that are there, in the order of the fields."""
        return self.data + self.parameters

    def replace_tensors(self, tensors: Sequence[Tensor]) -> Self:
        """Return the same fields made of other tensors, which come in the order of `tensors`."""
        tables, others = tensors[:N_TABLES], list(tensors[N_TABLES:])
        factors = None if self.factors is None else others.pop(0)
        projection = None if self.projection is None else others.pop(0)
        return type(self)(tables, factors, projection, *others)

    def widen(self) -> Self:
        """Return the same in the type of the gain, which is the widest."""
        return self.replace_tensors([x.to(self.gain.dtype) for x in self.tensors])

    def restore_types(self, derivatives: Sequence[Tensor]) -> list[Tensor]:
        """Return derivatives, in the order of `tensors`, each in the type of its tensor."""
        pairs = zip(derivatives, self.tensors, strict=False)
        return [derivative.to(x.dtype) for derivative, x in pairs]


# Tables, factors, projection, other parameters, and what `Route.encode` returns: the arguments of
# each operator.
Arguments = tuple[
    Sequence[Tensor],
    Tensor | None,
    Tensor | None,
    Sequence[Tensor],
    Sequence[Tensor],
    Sequence[int],
]


def decode(*arguments: *Arguments) -> tuple[Inputs, Route]:
    """Decode the arguments of an operator."""
    tables, factors, projection, parameters, lists, code = arguments
    return Inputs(tables, factors, projection, *parameters), Route.decode(lists, code)


def make_kept(keep: bool, inputs: Inputs, route: Route) -> Tensor:
    """Allocate the saved numbers of each message, or no row."""
    return inputs.gain.new_empty(route.n_messages if keep else 0, count_kept(inputs))


def count_kept(inputs: Inputs) -> int:
    """Count the saved numbers of a message: du with a hidden layer, and y."""
    n_hidden = 0 if inputs.weight is None else inputs.weight.shape[1]
    return 2 * (n_hidden + inputs.gain.shape[2])


def gather_rows(table: Tensor, plan: Segments | None) -> Tensor:
    """Return the row of a table that each message reads, (n_messages, width)."""
    return table if plan is None else table.index_select(0, plan.index)


def sum_rows(values: Tensor, plan: Segments | None) -> Tensor:
    """Sum the values (n_messages, width) of messages that read the same row of a table."""
    return values if plan is None else segment_sum(values, plan)
