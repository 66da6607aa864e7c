"""The file of predictions: labels and predictions side by side, sample by sample.

It has the layout of all files of samples (`pipeline_core.artifacts.samples`), so `SampleFile(path,
"predictions")` reads it. Each sample carries `split` (its place in `SPLITS`, as in the data),
`<quantity>_label` and `<quantity>_predicted`, and where the data have them `group`, `source` and
`atomic_numbers`. Of a model with several heads it carries `head`, the number of its head among the
names of the attribute `heads`.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts import store
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.batch import Batch
from pipeline_core.evaluation.predict import Window
from pipeline_core.fields import FIELDS, SPLITS, Field
from pipeline_core.project.run import Run
from pipeline_core.task import Quantity

Texts = NDArray[np.object_]


def read_origins(run: Run, n_samples: Mapping[str, int]) -> dict[str, dict[str, Texts]]:
    """Read groups and sources of samples from the data.

    Args:
        run: Its data are read.
        n_samples: Number of samples of each split.

    Returns:
        For each split "group" and "source" -> (n_samples,), if the data have them; empty where the
        data have a layout of their own, or where the task takes a part of a split.
    """
    nothing: dict[str, dict[str, Texts]] = {split: {} for split in n_samples}
    if run.dataset is None:
        return nothing
    with store.open_any(run.data) as file:
        if file.attrs.get("schema") != "data" or "split" not in file:
            return nothing
        numbers = file["split"][:]
        texts = {name: file[name].asstr()[:] for name in ("group", "source") if name in file}
    chosen = {split: numbers == SPLITS.index(split) for split in n_samples}
    if any(chosen[split].sum() != n for split, n in n_samples.items()):
        return nothing
    return {split: {n: t[rows] for n, t in texts.items()} for split, rows in chosen.items()}


def make_prediction_fields(
    kinds: Container[str],
    quantities: Sequence[Quantity],
    texts: Sequence[str],
    heads: Sequence[str] = (),
) -> list[Field]:
    """Return the fields of the file.

    Args:
        kinds: Kinds of the rows of samples; if these include atoms, their elements are written.
        quantities: Labelled and predicted quantities.
        texts: Which of group and source exist.
        heads: Names of the heads of the model, if it has several.
    """
    fields = [FIELDS["split"], *(FIELDS[name] for name in texts)]
    if heads:
        fields.append(FIELDS["head"])
    if "atom" in kinds:
        fields.append(FIELDS["atomic_numbers"])
    for quantity in quantities:
        field = replace(quantity.field, dtype="f8" if quantity.field.exact else "f4")
        fields += [replace(field, name=f"{field.name}_{role}") for role in ("label", "predicted")]
    return fields


def write_window(
    writer: SampleWriter,
    window: Window,
    quantities: Sequence[Quantity],
    split: str,
    texts: Mapping[str, Texts],
) -> None:
    """Append the samples of a window, which belong to `split` and carry `texts`."""
    columns = dict(_yield_columns(window, quantities))
    for number in range(len(window)):
        sample: dict[str, Any] = {"split": np.asarray(SPLITS.index(split))}
        if "head" in writer.names:
            sample["head"] = window.heads[number]
        for name, words in texts.items():
            sample[name] = np.asarray(words[window.start + number], dtype=object)
        for name, (kind, values) in columns.items():
            sample[name] = values[_select_rows(kind, window.batch, number)]
        writer.add(sample)


def _yield_columns(
    window: Window, quantities: Sequence[Quantity]
) -> Iterator[tuple[str, tuple[str, NDArray[Any]]]]:
    if "atomic_numbers" in window.batch:
        yield "atomic_numbers", ("atom", window.batch["atomic_numbers"].numpy())
    for quantity in quantities:
        name, kind = quantity.name, quantity.field.kind
        yield f"{name}_label", (kind, window.batch[name].numpy())
        yield f"{name}_predicted", (kind, window.outputs[name].numpy())


def _select_rows(kind: str, batch: Batch, number: int) -> int | slice:
    if kind == "sample":
        return number
    start, stop = batch[f"{kind}_offsets"][number : number + 2].tolist()
    return slice(start, stop)
