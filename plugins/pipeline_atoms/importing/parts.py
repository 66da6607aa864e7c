"""Import of one dataset file: reading, checking and converting its sources, and its split."""

from collections.abc import Sequence
from itertools import chain
from operator import methodcaller

import numpy as np

from pipeline_atoms.config.datasets import LabelledFrames
from pipeline_atoms.importing.agreement import require_agreement
from pipeline_atoms.importing.columns import Columns, qualify_group
from pipeline_atoms.importing.coverage import Coverage
from pipeline_atoms.importing.frames import Skipped
from pipeline_atoms.importing.import_cache import KeptSamples
from pipeline_atoms.importing.report import PartReport, SourceReport
from pipeline_atoms.importing.shards import PreparedFrame, RefusedFrame
from pipeline_atoms.importing.sources import RawSource, require_dataset
from pipeline_atoms.importing.stress_check import WorkCheck
from pipeline_atoms.workers import Workers
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.data.duplicates import Duplicates
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import DatasetRun


def require_sensible(run: DatasetRun) -> None:
    """Check a dataset file for contradictions before hours of reading.

    Raises:
        ValueError: It has a contradiction.
    """
    options = require_dataset(run)
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


def require_fetched(run: DatasetRun, sources: Sequence[RawSource]) -> None:
    """Check that downloadable files have been downloaded.

    Raises:
        ValueError: A file is missing.
    """
    missing = sorted({n for s in sources for n, path in s.files.items() if not path.exists()})
    if missing:
        raise ValueError(
            f"{run.path}: {', '.join(missing)} {'are' if len(missing) > 1 else 'is'} not there "
            f"yet; fetch with: pipeline-core download --dataset {run.name}"
        )


class PartImport:
    """Importer of the datasets in a file of samples, one after the other.

    Args:
        writer: Writer of the samples.
        labels: Labels of each sample, NaN if its dataset does not have them.
        workers: Processes that read and check.
        kept: Samples of the previous import.
        in_mixture: True if names of groups begin with the name of their dataset.

    Attributes:
        duplicates: The content of all samples so far.
    """

    def __init__(
        self,
        writer: SampleWriter,
        labels: Sequence[str],
        workers: Workers,
        kept: KeptSamples,
        *,
        in_mixture: bool,
    ) -> None:
        self._writer, self._labels, self._in_mixture = writer, labels, in_mixture
        self._workers, self._kept = workers, kept
        self.duplicates = Duplicates()

    def run(self, run: DatasetRun, sources: Sequence[RawSource]) -> PartReport:
        """Write the good frames of all sources of a dataset, and split them.

        Raises:
            ValueError: The content of its files is wrong.
        """
        options = require_dataset(run)
        columns, skipped = Columns(), Skipped(options.strict)
        begin = len(self.duplicates)
        reports = [self._import_source(s, run, columns, skipped) for s in sources]
        if not len(columns):
            raise ValueError(
                f"{run.path}: none of the {len(skipped)} labels of picks can be used, first "
                f"{skipped.first[0]}; change the settings of the labelling program, or tighten "
                "`learn.limits` and `learn.md`"
            )
        for name in options.labels:
            if not any(report.coverage.present[name] for report in reports):
                raise ValueError(reports[0].coverage.explain_absence(name))
        try:
            codes = columns.divide(options.split, self.duplicates.find_first(begin))
        except ValueError as error:
            raise ValueError(f"{run.path}: {error}") from None
        return PartReport(run.name, options, reports, columns, codes, skipped)

    def _import_source(
        self, source: RawSource, run: DatasetRun, columns: Columns, skipped: Skipped
    ) -> SourceReport:
        """Write the good frames of a source, and check its labels, signs and units."""
        options = require_dataset(run)
        coverage, check = Coverage(source, options.labels), WorkCheck(options.stress_check_samples)
        missing = [name for name in self._labels if name not in options.labels]
        n_skipped = len(skipped)
        split = -1 if source.options.split is None else SPLITS.index(source.options.split)
        part = run.name if self._in_mixture else ""
        kept = self._kept.open(source, options.labels, missing, part)
        shards = kept.list_shards(source, options.labels, missing, part)
        for one in chain.from_iterable(self._workers.map(methodcaller("prepare"), shards)):
            if isinstance(one, ValueError):
                raise one
            if isinstance(one, RefusedFrame):
                skipped.add(source.files[one.file], one.frame)
                kept.note_bad_frame(one.file)
                continue
            coverage.add(one.file, one.number, one.labels)
            check.add(one.cell)
            kept.note(one.file, self._writer.n_samples)
            self._write(one, part)
            self.duplicates.add(one.file, one.content, one.n_copies)
            composition = columns.compositions.number(one.composition)
            n_atoms, energy = len(one.sample["atomic_numbers"]), one.sample.get("energy", np.nan)
            columns.add(composition, one.group, n_atoms, float(energy), split)
        # Each pick is a source of its own, and the calculation of one may not converge.
        if coverage.n_frames == 0 and not isinstance(options, LabelledFrames):
            raise ValueError(skipped.explain_useless(source, n_skipped))
        coverage.require(options.partial)
        agreement = check.measure_agreements()
        require_agreement(agreement, source)
        return SourceReport(source, coverage, len(skipped) - n_skipped, agreement)

    def _write(self, frame: PreparedFrame, part: str) -> None:
        group = qualify_group(part, frame.group) if part else frame.group
        place = f"{frame.file}:{frame.number}"
        words = {"group": np.asarray(group), "source": np.asarray(place)}
        self._writer.add({**frame.sample, **words})
