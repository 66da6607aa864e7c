"""Metrics of one split: over everything, by group of samples, by element."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.evaluation.metrics import Errors
from pipeline_core.evaluation.predict import Window
from pipeline_core.evaluation.records import Texts
from pipeline_core.fields import SYMBOLS
from pipeline_core.task import Quantity
from pipeline_core.training.residuals import compute_residuals, read_labels

MOST_GROUPS: Final = 64
"""Largest number of groups in the table; predictions name more, such as one per material."""


class Breakdown:
    """Collects the errors of a split.

    Args:
        quantities: Quantities to compare. One per atom is also compared as a total.
        groups: Name of the group of each sample (n_samples,), or None.
        heads: Names of the heads of the model, if it has several.
    """

    def __init__(
        self, quantities: Sequence[Quantity], groups: Texts | None, heads: Sequence[str] = ()
    ) -> None:
        self._heads = heads
        self._by_head: dict[str, dict[str, Errors]] = defaultdict(lambda: defaultdict(Errors))
        self._metrics = [metric for quantity in quantities for metric in _split_metrics(quantity)]
        few = groups is not None and len(set(groups)) <= MOST_GROUPS
        self._groups = groups if few else None
        self._all: dict[str, Errors] = defaultdict(Errors)
        self._by_group: dict[str, dict[str, Errors]] = defaultdict(lambda: defaultdict(Errors))
        self._by_element: dict[str, dict[str, Errors]] = defaultdict(lambda: defaultdict(Errors))
        self.n_samples = 0

    def add(self, window: Window) -> None:
        """Compare one window."""
        self.n_samples += len(window)
        for name, quantity in self._metrics:
            kind = quantity.field.kind
            error, label = _compare(quantity, window)
            self._all[name] += Errors.of(error, label)
            if self._groups is not None:
                for group, rows in _group_rows(self._groups[_number_samples(kind, window)]):
                    self._by_group[group][name] += Errors.of(error[rows], label[rows])
            if self._heads:
                numbers = window.heads[_number_samples(kind, window) - window.start]
                for head, rows in _group_rows(numbers):
                    self._by_head[self._heads[head]][name] += Errors.of(error[rows], label[rows])
            if kind == "atom":
                for z, rows in _group_rows(window.batch["atomic_numbers"].numpy()):
                    element = SYMBOLS[z]
                    self._by_element[element][name] += Errors.of(error[rows], label[rows])

    def report(self) -> dict[str, Any]:
        """Return the metrics; every quantity is listed, with null where it has no labels."""
        tables = {"groups": self._by_group, "elements": self._by_element}
        if self._by_head:
            tables["heads"] = self._by_head
        return {
            "n_samples": self.n_samples,
            "quantities": self._make_table({name: self._all[name] for name, _ in self._metrics}),
            **{
                kind: {name: self._make_table(table[name]) for name in sorted(table)}
                for kind, table in tables.items()
            },
        }

    def _make_table(self, errors: Mapping[str, Errors]) -> dict[str, Any]:
        units = {name: _name_unit(quantity) for name, quantity in self._metrics}
        return {name: own.report(units[name]) for name, own in errors.items()}


def _name_unit(quantity: Quantity) -> str:
    return f"{quantity.field.unit}/atom" if quantity.per_atom else quantity.field.unit


def _split_metrics(quantity: Quantity) -> Iterator[tuple[str, Quantity]]:
    yield quantity.name, replace(quantity, per_atom=False)
    if quantity.per_atom:
        yield f"{quantity.name}_per_atom", quantity


def _compare(quantity: Quantity, window: Window) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return error and label in float64, per atom if the quantity is, NaN where missing."""
    label = read_labels(quantity, window.batch).double()
    outputs = {name: values.double() for name, values in window.outputs.items()}
    error, _ = compute_residuals(quantity, outputs, {**window.batch, quantity.name: label})
    if quantity.per_atom:
        n_atoms = window.batch["atom_offsets"].diff()
        label = label / n_atoms.view(-1, *[1] * (label.ndim - 1))
    return error.numpy(), label.numpy()


def _number_samples(kind: str, window: Window) -> NDArray[np.int64]:
    """Return the number within the split of the sample that each row of `kind` belongs to."""
    own = np.arange(len(window)) if kind == "sample" else window.batch[f"{kind}_sample"].numpy()
    return window.start + own


def _group_rows(values: NDArray[Any]) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Yield each distinct value with the rows that have it."""
    for value in np.unique(values):
        yield value, np.flatnonzero(values == value)
