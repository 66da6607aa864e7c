"""What an import says of itself: the report file and the summary on the screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pipeline_core.config.datasets import Dataset
from pipeline_core.fields import SPLITS
from pipeline_core.importing.agreement import Agreement
from pipeline_core.importing.columns import Columns
from pipeline_core.importing.coverage import Coverage
from pipeline_core.importing.frames import Skipped
from pipeline_core.importing.reference_energies import ReferenceEnergies
from pipeline_core.importing.sources import RawSource
from pipeline_core.importing.splits import Codes

_LISTED_GROUPS: Final = 200


@dataclass(frozen=True)
class SourceReport:
    """What was found in one source.

    Attributes:
        source: The source.
        coverage: Its good frames and their labels.
        n_skipped: Number of its bad frames.
        agreement: How forces and stress agree with the energies.
    """

    source: RawSource
    coverage: Coverage
    n_skipped: int
    agreement: Mapping[str, Agreement]

    def content(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return {
            "path": self.source.options.path,
            "reader": self.source.reader.name,
            "files": len(self.source.files),
            "frames": self.coverage.n_frames,
            "skipped": self.n_skipped,
            "units": vars(self.source.units),
            "split": self.source.options.split,
            "labels": dict(self.coverage.present),
            "agreement_with_energies": {n: a.report() for n, a in self.agreement.items()},
        }


@dataclass(frozen=True)
class ImportReport:
    """All that an import found out, before it is put into words."""

    name: str
    options: Dataset
    columns: Columns
    codes: Codes
    references: ReferenceEnergies
    sources: Sequence[SourceReport]
    skipped: Skipped

    def content(self) -> dict[str, Any]:
        """Return the content of the report file."""
        n_samples = len(self.columns)
        present = [source.coverage.present for source in self.sources]
        labels = {name: sum(p[name] for p in present) for name in self.options.labels}
        return {
            "dataset": self.name,
            "samples": n_samples,
            "atoms": int(self.columns.n_atoms.sum()),
            "warnings": self.warnings(),
            "labels": {n: {"present": k, "missing": n_samples - k} for n, k in labels.items()},
            "sources": [source.content() for source in self.sources],
            "skipped": self.skipped.report(),
            "splits": self.splits(),
            "groups": self._groups(),
            "reference_energies": self.references.report(),
        }

    def summary(self) -> dict[str, Any]:
        """Return the figures that the stage shows at its end."""
        return {
            "samples": len(self.columns),
            "skipped": len(self.skipped),
            **self.splits(),
            "elements": len(self.references.n_samples),
            "reference_rms": self.references.rms_after,
            "stress": [s.agreement["stress"].verdict for s in self.sources],
            "warnings": self.warnings(),
        }

    def splits(self) -> dict[str, int]:
        """Return the number of samples in each split."""
        return {name: int(np.count_nonzero(self.codes == i)) for i, name in enumerate(SPLITS)}

    def _groups(self) -> dict[str, Any]:
        """Return the largest groups and how each is divided."""
        group, names = self.columns.group, self.columns.groups
        table = np.zeros((len(names), len(SPLITS)), dtype=np.int64)
        np.add.at(table, (group, self.codes), 1)
        largest = np.argsort(-table.sum(axis=1), kind="stable")[:_LISTED_GROUPS]
        listed = {names[i]: dict(zip(SPLITS, table[i].tolist(), strict=True)) for i in largest}
        return {"count": len(names), "largest": listed}

    def warnings(self) -> list[str]:
        """Return what a user should know although the import went on."""
        return list(self._warnings())

    def _warnings(self) -> Iterator[str]:
        references, split = self.references, self.options.split
        if len(self.skipped):
            yield f"{len(self.skipped)} bad frames were skipped; see `skipped` in the report"
        unseen = [symbol for symbol, n in references.n_samples.items() if n == 0]
        if unseen:
            yield f"{', '.join(unseen)}: in no training sample"
        if references.not_separable:
            yield (
                f"{', '.join(references.not_separable)} occur only in fixed proportions: their "
                "reference energies are the solution of least norm, no energies of atoms"
            )
        for found in self.sources:
            for label, agreement in found.agreement.items():
                if agreement.is_mixed:
                    low, high = agreement.interval
                    yield (
                        f"{label} of {found.source.options.path}: fits the energies with a factor "
                        f"between {low:.3g} and {high:.3g}; are methods or units mixed?"
                    )
        for name, fraction in (("val", split.val), ("test", split.test)):
            if fraction > 0 and self.splits()[name] == 0:
                yield f"no sample is in the split {name!r}"
