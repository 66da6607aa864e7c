"""Import of a dataset from beginning to end."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

import numpy as np

from pipeline_atoms.config.datasets import Label, Mixture, Structures
from pipeline_atoms.importing.columns import Columns
from pipeline_atoms.importing.import_cache import KeptSamples, locate_kept
from pipeline_atoms.importing.parts import PartImport, require_fetched, require_sensible
from pipeline_atoms.importing.reference_energies import fit_reference_energies
from pipeline_atoms.importing.report import ImportReport, PartReport
from pipeline_atoms.importing.shards import count_bytes
from pipeline_atoms.importing.sources import (
    RawSource,
    find_beside,
    find_dataset_sources,
    identify_readers,
    require_dataset,
    require_disjoint,
)
from pipeline_atoms.workers import Workers, can_be_sent
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.artifacts.store import write_json
from pipeline_core.config.raw_files import hash_raw_files
from pipeline_core.data.duplicates import Duplicates, unite_splits
from pipeline_core.fields import FIELDS, SPLITS
from pipeline_core.project.run import DatasetRun

_LARGE: Final = 16_000_000
"""Bytes of raw files from which on worker processes, and the import cache, pay off."""
_STRUCTURE: Final = ("cell", "pbc", "group", "source", "atomic_numbers", "positions")


def import_dataset(run: DatasetRun) -> Mapping[str, Any]:
    """Read all sources of a dataset, or of all parts of a mixture; write `run.data`, `run.report`.

    Frames are read once. Splits and reference energies, which need all frames, are computed from a
    few numbers per frame and written last.

    Args:
        run: The dataset.

    Returns:
        Summary for the screen.

    Raises:
        ValueError: The dataset file, a raw file, or its content is wrong; nothing is written.
    """
    for part in run.parts:
        require_sensible(part)
    sources = _find_sources(run)
    kept = {name for part in run.parts for name in require_dataset(part).labels}
    # A dataset keeps the order of its own file.
    labels = [n for n in get_args(Label) if n in kept] if run.mixed else require_dataset(run).labels
    fields = [FIELDS[name] for name in (*_STRUCTURE, *labels)]
    provenance = run.make_provenance()
    provenance["inputs"] |= hash_raw_files(find_beside(run), run.raw_memory)
    record = {**provenance, "readers": identify_readers(run)}
    is_large = count_bytes(s for part in sources.values() for s in part) >= _LARGE
    before = KeptSamples(locate_kept(run) if is_large else None, record)
    with (
        Workers(wanted=is_large and _can_be_sent(sources)) as workers,
        SampleWriter(run.data, "data", record, fields) as writer,
    ):
        importing = PartImport(writer, labels, workers, before, in_mixture=bool(run.mixed))
        reports = [
            replace(importing.run(part, sources[part.name]), head=head)
            for part, head in zip(run.parts, _list_part_heads(run), strict=True)
        ]
        report = _fit_references(run, labels, reports, importing.duplicates)
        writer.add_column("split", report.codes)
        if heads := _list_heads(run):
            numbers = [heads.index(one.head) for one in reports]
            counts = [len(one.codes) for one in reports]
            writer.add_column("head", np.repeat(np.array(numbers, np.int32), counts))
            writer.attributes["heads"] = json.dumps(
                {head: report.references[head].energies for head in heads}
            )
        writer.attributes["labels"] = json.dumps(labels)
        writer.attributes["elements"] = json.dumps(report.elements)
        first = next(iter(report.references.values()))
        writer.attributes["reference_energies"] = json.dumps(first.energies)
        write_json(run.report, report.to_dict(), provenance)
    before.replace(run.data)
    reused = {"unchanged_files": before.n_files} if before.n_files else {}
    return {**report.summarize(), **reused}


def _list_heads(run: DatasetRun) -> list[str]:
    """Return the names of the heads of a mixture; empty if all parts share one head."""
    return run.options.heads if isinstance(run.options, Mixture) else []


def _list_part_heads(run: DatasetRun) -> list[str]:
    """Return the head of each part, empty if none is named."""
    if isinstance(run.options, Mixture):
        return [part.head or "" for part in run.options.parts]
    return [""]


def _can_be_sent(by_part: Mapping[str, Sequence[RawSource]]) -> bool:
    """Return True if worker processes can read all files."""
    return all(can_be_sent(one.reader) for part in by_part.values() for one in part)


def _find_sources(run: DatasetRun) -> dict[str, list[RawSource]]:
    """Find the raw files of every part, by the name of the part."""
    by_part = {}
    for part in run.parts:
        by_part[part.name] = find_dataset_sources(part)
        require_fetched(part, by_part[part.name])
    require_disjoint([source for sources in by_part.values() for source in sources])
    return by_part


def _fit_references(
    run: DatasetRun,
    labels: Sequence[str],
    reports: Sequence[PartReport],
    duplicates: Duplicates,
) -> ImportReport:
    """Find duplicates across parts, and fit reference energies, from the samples of all parts."""
    options = run.options
    assert isinstance(options, Structures)
    columns = reports[0].columns
    if run.mixed:
        columns = Columns()
        for part in reports:
            columns.append(part.name, part.columns)
    codes = unite_splits(np.concatenate([part.codes for part in reports]), duplicates.find_first())
    ends = np.cumsum([len(part.codes) for part in reports])
    reports = [
        replace(part, codes=own)
        for part, own in zip(reports, np.split(codes, ends[:-1]), strict=True)
    ]
    try:
        of_head = np.repeat([one.head for one in reports], [len(one.codes) for one in reports])
        references = {
            head: fit_reference_energies(
                columns,
                (codes == SPLITS.index("train")) & (of_head == head),
                options.reference_energies,
                options.max_reference_energy,
            )
            for head in _list_heads(run) or [""]
        }
    except ValueError as error:
        raise ValueError(f"{run.path}: {error}") from None
    return ImportReport(run.name, labels, reports, columns, codes, references, duplicates.report())
