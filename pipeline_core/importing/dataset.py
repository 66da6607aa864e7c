"""The import of a dataset from beginning to end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from pipeline_core import provenance
from pipeline_core.config.datasets import Dataset
from pipeline_core.fields import FIELDS, SPLITS
from pipeline_core.importing.agreement import require_agreement
from pipeline_core.importing.columns import Columns
from pipeline_core.importing.coverage import Coverage
from pipeline_core.importing.frames import Skipped, converted, good_frames
from pipeline_core.importing.groups import group_name
from pipeline_core.importing.reference_energies import ReferenceEnergies, reference_energies
from pipeline_core.importing.report import ImportReport, SourceReport
from pipeline_core.importing.sources import RawSource, find_sources
from pipeline_core.importing.splits import Codes, divide
from pipeline_core.importing.stress_check import WorkCheck
from pipeline_core.run import DatasetRun
from pipeline_core.samples import SampleWriter
from pipeline_core.store import write_json

_STRUCTURE: Final = ("cell", "pbc", "group", "source", "atomic_numbers", "positions")


def import_dataset(run: DatasetRun) -> Mapping[str, Any]:
    """Read all sources of a dataset and write `run.data` and `run.report`.

    Frames are read once. What needs all of them, the split and the reference energies, is computed
    from a few numbers a frame and written last.

    Args:
        run: The dataset.

    Returns:
        Figures for the screen.

    Raises:
        ValueError: The dataset file, a raw file, or what the files say is wrong; nothing is
            written.
    """
    options = run.frames
    _require_sensible(run)
    readers = run.project.registry.collect("readers")
    sources = find_sources(run.path, options.sources, readers)
    columns, skipped = Columns(), Skipped(options.strict)
    fields = [FIELDS[name] for name in (*_STRUCTURE, *options.labels)]
    with SampleWriter(run.data, "data", _provenance(run, sources), fields) as writer:
        found = [_import_source(s, options, writer, columns, skipped) for s in sources]
        codes, references = _concluded(run, columns, found)
        writer.add_column("split", codes)
        writer.attributes["labels"] = json.dumps(options.labels)
        writer.attributes["elements"] = json.dumps(list(references.n_samples))
        writer.attributes["reference_energies"] = json.dumps(references.energies)
        report = ImportReport(run.name, options, columns, codes, references, found, skipped)
        write_json(run.report, report.content())
    return report.summary()


def _require_sensible(run: DatasetRun) -> None:
    """Find contradictions in the dataset file before hours of reading."""
    options = run.frames
    stray = [name for name in options.partial if name not in options.labels]
    if stray:
        raise ValueError(
            f"{run.path}: partial: {stray[0]} is not in `labels` ({', '.join(options.labels)}); "
            "add it there, or remove it from `partial`"
        )
    if options.split.method in ("group", "list"):
        for source in options.sources:
            if source.group is None and source.split is None:
                raise ValueError(
                    f"{run.path}: source {source.path!r} declares no `group`, which the split "
                    f"method {options.split.method!r} needs; set it to folder, file, composition "
                    "or a key of the frames, or name the `split` of the source"
                )


def _provenance(run: DatasetRun, sources: Sequence[RawSource]) -> dict[str, Any]:
    record = run.provenance()
    for source in sources:
        for name, path in source.files.items():
            try:
                record["inputs"][name] = provenance.sha256(path)
            except OSError as error:
                raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    return record


def _import_source(
    source: RawSource, options: Dataset, writer: SampleWriter, columns: Columns, skipped: Skipped
) -> SourceReport:
    """Write the good frames of a source, having checked its labels, signs and units."""
    coverage, check = Coverage(source, options.labels), WorkCheck(options.stress_check_samples)
    n_skipped = len(skipped)
    split = -1 if source.options.split is None else SPLITS.index(source.options.split)
    for file, frame in good_frames(source, skipped):
        coverage.add(file, frame)
        composition = columns.compositions.number(frame.atomic_numbers)
        group = group_name(source, file, frame, columns.compositions.formula(composition))
        sample = converted(frame, options.labels, source.factors)
        check.add(sample)
        place = {"group": np.asarray(group), "source": np.asarray(f"{file}:{frame.index}")}
        writer.add(sample | place)
        energy = float(sample.get("energy", np.nan))
        columns.add(composition, group, len(frame.atomic_numbers), energy, split)
    coverage.require(options.partial)
    agreement = check.result()
    require_agreement(agreement, source)
    return SourceReport(source, coverage, len(skipped) - n_skipped, agreement)


def _concluded(
    run: DatasetRun, columns: Columns, found: Sequence[SourceReport]
) -> tuple[Codes, ReferenceEnergies]:
    """Do what needs all samples: labels that no source has, split, reference energies."""
    options = run.frames
    for name in options.labels:
        if not any(report.coverage.present[name] for report in found):
            raise ValueError(found[0].coverage.absence(name))
    try:
        codes = divide(columns, options.split)
        training = codes == SPLITS.index("train")
        return codes, reference_energies(
            columns, training, options.reference_energies, options.max_reference_energy
        )
    except ValueError as error:
        raise ValueError(f"{run.path}: {error}") from None
