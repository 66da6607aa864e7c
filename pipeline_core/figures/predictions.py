"""Labels and predictions of a run, as figures compare them."""

import json
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.fields import SPLITS
from pipeline_core.figures.quantities import Quantity, find_quantity
from pipeline_core.figures.results import Errors, Floats, read_metrics
from pipeline_core.project.run import Run


@dataclass(frozen=True)
class Comparison:
    """Labels and predictions of one quantity on one split, as figures show them.

    Attributes:
        quantity: The quantity and its units.
        split: Name of the split.
        label: (n,) in `quantity.unit`; components of vectors one by one.
        predicted: (n,) likewise.
        errors: From the metrics, in the engine's unit.
        half_width: (n,) of 95 % intervals in `quantity.unit`; None without a committee.
        head: Head of the samples, for a model with several; None for all.
    """

    quantity: Quantity
    split: str
    label: Floats
    predicted: Floats
    errors: Errors
    half_width: Floats | None = None
    head: str | None = None


def list_heads(run: Run) -> list[str]:
    """Return the heads with errors on the held-out split; empty for a model with one."""
    report = read_metrics(run)
    return list(report.splits[report.held_out].heads) if report and report.held_out else []


def read_comparisons(run: Run, head: str | None = None) -> list[Comparison]:
    """Read labels and predictions of every quantity on the held-out split.

    Args:
        run: The run.
        head: One of `list_heads`, to read its samples only; None for all.
    """
    report = read_metrics(run)
    split = report.held_out if report else None
    if report is None or split is None or not store.has_schema(run.predictions, "predictions"):
        return []
    table = report.splits[split].quantities if head is None else report.splits[split].heads[head]
    with SampleFile(run.predictions, "predictions") as file:
        chosen = file.read_column("split") == SPLITS.index(split)
        if head is not None:
            number = json.loads(file.attributes["heads"]).index(head)
            chosen &= file.read_column("head") == number
        names = [n.removesuffix("_label") for n in file.fields if n.endswith("_label")]
        comparisons = []
        for name in names:
            shown = f"{name}_per_atom" if f"{name}_per_atom" in table else name
            errors = table.get(shown)
            if errors is not None and errors.count:
                quantity = find_quantity(shown, errors.unit)
                compared = _read_comparison(file, name, chosen, quantity, split, errors)
                comparisons.append(replace(compared, head=head))
    return comparisons


def _read_comparison(
    file: SampleFile,
    name: str,
    chosen: NDArray[np.bool_],
    shown: Quantity,
    split: str,
    errors: Errors,
) -> Comparison:
    kind = file.fields[f"{name}_label"].kind
    rows = chosen if kind == "sample" else np.repeat(chosen, file.count_rows(kind))
    divisor = file.count_rows("atom")[chosen] if shown.name != name else 1
    label, predicted = (
        (file.read_column(f"{name}_{role}")[rows].astype(np.float64).T / divisor).T.ravel()
        * shown.factor
        for role in ("label", "predicted")
    )
    present = ~np.isnan(label)
    return Comparison(shown, split, label[present], predicted[present], errors)
