"""Import report: the report file and the summary on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from pipeline_atoms.config.datasets import Dataset, LabelledFrames
from pipeline_atoms.importing.agreement import Agreement
from pipeline_atoms.importing.columns import Columns
from pipeline_atoms.importing.coverage import Coverage
from pipeline_atoms.importing.frames import Skipped
from pipeline_atoms.importing.reference_energies import ReferenceEnergies, compute_remainders
from pipeline_atoms.importing.sources import RawSource
from pipeline_atoms.importing.stress_check import explain_unchecked_forces, explain_unchecked_stress
from pipeline_core.data.duplicates import describe_duplicates
from pipeline_core.data.splits import Codes, count_groups, count_splits
from pipeline_core.fields import SPLITS

_OFFSET: Final = 2.0  # mean over scatter above which a part of a mixture is reported


@dataclass(frozen=True)
class SourceReport:
    """Import results of one source.

    Attributes:
        source: The source.
        coverage: Its good frames and their labels.
        n_skipped: Number of its bad frames.
        agreement: Agreement of forces and stress with the energies.
    """

    source: RawSource
    coverage: Coverage
    n_skipped: int
    agreement: Mapping[str, Agreement]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON-able values."""
        return {
            "path": self.source.options.path,
            "reader": self.source.reader.name,
            "files": len(self.source.files),
            "frames": self.coverage.n_frames,
            "skipped": self.n_skipped,
            "units": vars(self.source.units),
            "split": self.source.options.split,
            "repeat": self.source.options.repeat,
            "repeat_to": self.source.options.repeat_to,
            "labels": dict(self.coverage.present),
            "agreement_with_energies": {n: a.report() for n, a in self.agreement.items()},
        }


@dataclass(frozen=True)
class PartReport:
    """Import results of one dataset file; a mixture has several.

    Attributes:
        name: Name of the dataset.
        options: Content of the dataset file.
        sources: Results of its sources.
        columns: Its samples.
        codes: Their splits, (n_samples,).
        skipped: Its bad frames.
        head: Head of models that it belongs to, empty if all parts share one.
    """

    name: str
    options: Dataset
    sources: Sequence[SourceReport]
    columns: Columns
    codes: Codes
    skipped: Skipped
    head: str = ""

    def count_sizes(self) -> dict[str, int]:
        """Return the number of samples of each number of atoms."""
        n_atoms, counts = np.unique(self.columns.n_atoms, return_counts=True)
        return dict(zip(map(str, n_atoms.tolist()), counts.tolist(), strict=True))

    def measure_remainder(self, by_head: Mapping[str, ReferenceEnergies]) -> Remainder | None:
        """Return statistics of training energies minus reference energies, if there are any."""
        references = by_head[self.head]
        left = compute_remainders(self.columns, references.energies)
        left = left[(self.codes == SPLITS.index("train")) & np.isfinite(left)]
        if references.method == "none" or len(left) == 0:
            return None
        return Remainder(float(np.sqrt(np.mean(left**2))), float(left.mean()), float(left.std()))


class Remainder(NamedTuple):
    """Statistics of energies minus reference energies in the training split of a part, eV/atom."""

    rms: float
    mean: float
    scatter: float


@dataclass(frozen=True)
class ImportReport:
    """Results of an import, the source of report file and summary.

    Attributes:
        name: Name of the dataset.
        labels: Labels of its samples.
        parts: Results of its parts; a dataset that is not a mixture is its own only part.
        columns: The samples of all parts.
        codes: Their splits, (n_samples,).
        references: Reference energies of each head; of the head "" if all parts share one.
        duplicates: Numbers of repeated frames, and the files that they are in.
    """

    name: str
    labels: Sequence[str]
    parts: Sequence[PartReport]
    columns: Columns
    codes: Codes
    references: Mapping[str, ReferenceEnergies]
    duplicates: Mapping[str, Any]

    @property
    def elements(self) -> list[str]:
        """Chemical symbols of all samples."""
        return list(next(iter(self.references.values())).n_samples)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the report file."""
        n_samples = len(self.columns)
        present = [source.coverage.present for part in self.parts for source in part.sources]
        labels = {name: sum(p[name] for p in present) for name in self.labels}
        references = {head: one.report() for head, one in self.references.items()}
        return {
            "dataset": self.name,
            "samples": n_samples,
            "atoms": int(self.columns.n_atoms.sum()),
            "warnings": self.list_warnings(),
            "labels": {n: {"present": k, "missing": n_samples - k} for n, k in labels.items()},
            "parts": {part.name: self._describe_part(part) for part in self.parts},
            "sources": [
                {"part": part.name, **source.to_dict()}
                for part in self.parts
                for source in part.sources
            ],
            "skipped": self._collect_skipped().report(),
            "duplicates": dict(self.duplicates),
            "splits": count_splits(self.codes),
            "groups": count_groups(self.columns.groups, self.columns.group, self.codes),
            "reference_energies": references.get("", references),
        }

    def _describe_part(self, part: PartReport) -> dict[str, Any]:
        left = part.measure_remainder(self.references)
        return {
            "samples": len(part.columns),
            "atoms": int(part.columns.n_atoms.sum()),
            "splits": count_splits(part.codes),
            "sizes": part.count_sizes(),
            "energies_less_references": None if left is None else left._asdict(),
        }

    def summarize(self) -> dict[str, Any]:
        """Return the summary that the stage shows at its end."""
        rms = {head: one.rms_after for head, one in self.references.items()}
        return {
            "samples": len(self.columns),
            "skipped": len(self._collect_skipped()),
            **count_splits(self.codes),
            "elements": len(self.elements),
            "reference_rms": rms.get("", rms),
            **self._summarize_parts(),
            "stress": [s.agreement["stress"].verdict for part in self.parts for s in part.sources],
            "warnings": self.list_warnings(),
        }

    def _summarize_parts(self) -> dict[str, Any]:
        if len(self.parts) == 1:
            return {}
        parts = {}
        for part in self.parts:
            left = part.measure_remainder(self.references)
            energies = {} if left is None else {"rms": left.rms, "mean": left.mean}
            parts[part.name] = {"samples": len(part.columns), "reference": energies}
        return {"parts": parts}

    def _collect_skipped(self) -> Skipped:
        total = Skipped(strict=False)
        for part in self.parts:
            total.append(part.skipped)
        return total

    def list_warnings(self) -> list[str]:
        """Return the warnings for the user."""
        return [
            *self._find_warnings(),
            *(w for part in self.parts for w in self._find_part_warnings(part)),
        ]

    def _find_warnings(self) -> Iterator[str]:
        skipped = self._collect_skipped()
        if len(skipped):
            yield (
                f"{len(skipped)} bad frames were skipped, such as {skipped.first[0]}; see "
                "`skipped` in the report"
            )
        yield from describe_duplicates(self.duplicates, "the structure")
        for head, references in self.references.items():
            of_head = f" of the head {head}" if head else ""
            unseen = [symbol for symbol, n in references.n_samples.items() if n == 0]
            if unseen:
                yield f"{', '.join(unseen)}: in no training sample{of_head}"
            if references.not_separable:
                yield (
                    f"{', '.join(references.not_separable)} occur only in fixed proportions"
                    f"{of_head}: their reference energies are the solution of least norm, no "
                    "energies of atoms"
                )

    def _find_part_warnings(self, part: PartReport) -> Iterator[str]:
        for one in part.sources:
            if one.source.links:
                link, file = next(iter(one.source.links.items()))
                yield (
                    f"{len(one.source.links)} names that match {one.source.options.path} lead to "
                    f"files that match by other names ({link} is {file}); each was read once"
                )
            for label, agreement in one.agreement.items():
                if agreement.is_mixed:
                    low, high = agreement.interval
                    yield (
                        f"{label} of {one.source.options.path}: fits the energies with a factor "
                        f"between {low:.3g} and {high:.3g}; are methods or units mixed?"
                    )
        if not isinstance(part.options, LabelledFrames):  # which the engine writes itself
            yield from _list_unchecked(part.sources, "forces", explain_unchecked_forces)
            yield from _list_unchecked(part.sources, "stress", explain_unchecked_stress)
        is_mixture = len(self.parts) > 1
        of_part = f" of {part.name}" if is_mixture else ""
        for name, fraction in (("val", part.options.split.val), ("test", part.options.split.test)):
            if fraction > 0 and count_splits(part.codes)[name] == 0:
                yield f"no sample{of_part} is in the split {name!r}"
        left = part.measure_remainder(self.references)
        if is_mixture and left is not None and abs(left.mean) > _OFFSET * left.scatter:
            yield (
                f"the reference energies miss those of {part.name} by {left.mean:+.3g} eV/atom on "
                f"average, which scatter by only {left.scatter:.3g}: was it calculated by another "
                "method than the other parts?"
            )


def _list_unchecked(
    sources: Sequence[SourceReport], label: str, explain: Callable[[Agreement, RawSource], str]
) -> Iterator[str]:
    """Yield a warning for a label that no pairs confirm, here or in a source of the same format."""
    # Atoms move while cells are strained: a stress that fits in this way needs forces that fit.
    confirmed = {
        (one.source.reader.name, one.source.units)
        for one in sources
        if "confirmed" in (one.agreement[label].verdict, one.agreement["stress"].verdict)
    }
    for one in sources:
        found, kind = one.agreement[label], (one.source.reader.name, one.source.units)
        is_unknown = found.verdict == "undetermined" and not found.is_mixed
        if is_unknown and one.coverage.present.get(label) and kind not in confirmed:
            yield explain(found, one.source)
