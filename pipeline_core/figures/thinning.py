"""Predictions as figures read them: of the held-out split all, of other splits the samples once.

The predictions of an experiment are many times larger than all else that its figures read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipeline_core import store
from pipeline_core.fields import SPLITS
from pipeline_core.figures import results
from pipeline_core.run import ExperimentRun, Run
from pipeline_core.samples import SampleFile, SampleWriter

_UNREAD: Final = ("group", "source")
"""Names, which take more room than the numbers of a small sample."""
_WHOLE: Final = ("sample", "atom")
"""Kinds of which samples outside of the held-out split keep their rows."""
_SCHEMA: Final = "predictions"

Known = set[tuple[str, frozenset[str]]]
"""Splits, with the names of the labels, that an earlier variant of the experiment has kept."""


def copy_predictions(experiment: ExperimentRun, kept: ExperimentRun) -> None:
    """Copy the predictions of all variants, thinned.

    Of a file with the field `split` the held-out split stays whole but for the names of groups and
    sources. Other splits stay in the first variant that predicts them, since what is drawn of them
    are labels; fields of other kinds than samples and atoms have no rows there. A file without that
    field, of a layout of its plugin's own, is copied as it is.

    Args:
        experiment: Whose predictions are read.
        kept: The same experiment in the folder that they are copied to.

    Raises:
        ValueError: A file is damaged, or cannot be written.
    """
    known: Known = set()
    for variant, run in experiment.runs.items():
        if not run.predictions.is_file():
            continue
        target = kept.runs[variant].predictions
        target.parent.mkdir(parents=True, exist_ok=True)
        if store.has_schema(run.predictions, _SCHEMA):
            _copy_samples(run, target, known)
        else:
            target.write_bytes(run.predictions.read_bytes())


def _copy_samples(run: Run, target: Path, known: Known) -> None:
    with SampleFile(run.predictions, _SCHEMA) as file:
        if "split" not in file.fields:
            target.write_bytes(run.predictions.read_bytes())
            return
        fields = [field for name, field in file.fields.items() if name not in _UNREAD]
        facts = store.read_provenance(run.predictions)
        with SampleWriter(target, _SCHEMA, facts, fields) as writer:
            writer.attributes.update(file.attributes)
            for sample in _select_samples(run, file, known):
                writer.add(sample)


def _select_samples(run: Run, file: SampleFile, known: Known) -> Iterator[dict[str, Any]]:
    report = results.read_metrics(run)
    whole = report.held_out if report else None
    labels = frozenset(name for name, field in file.fields.items() if field.label)
    codes = file.read_column("split")
    there = {split for code, split in enumerate(SPLITS) if (codes == code).any()}
    wanted = {split for split in there if split == whole or (split, labels) not in known}
    known |= {(split, labels) for split in wanted}
    for number, code in enumerate(codes.tolist()):
        if SPLITS[code] in wanted:
            sample = {n: v for n, v in file.read(number).items() if n not in _UNREAD}
            yield sample if SPLITS[code] == whole else _empty(sample, file)


def _empty(sample: Mapping[str, Any], file: SampleFile) -> dict[str, Any]:
    """Return a sample without the rows that are neither its own nor those of its atoms."""
    return {
        name: values if file.fields[name].kind in _WHOLE else np.asarray(values)[:0]
        for name, values in sample.items()
    }
