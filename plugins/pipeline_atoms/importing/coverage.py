"""Label coverage of the frames of a source, and the errors if labels are missing."""

from collections import Counter
from collections.abc import Sequence

from pipeline_atoms.importing.sources import RawSource
from pipeline_atoms.readers.describe import describe, explain_missing_label


class Coverage:
    """Counter of the labels of one source.

    Args:
        source: The source.
        labels: Labels that the dataset keeps.
    """

    def __init__(self, source: RawSource, labels: Sequence[str]) -> None:
        self._source = source
        self._labels = labels
        self._first_without: dict[str, str] = {}
        self.present: Counter[str] = Counter(dict.fromkeys(labels, 0))
        self.n_frames = 0

    def add(self, file: str, index: int, labels: Sequence[str]) -> None:
        """Count the labels of the frame `index` of `file`."""
        self.n_frames += 1
        for name in self._labels:
            if name in labels:
                self.present[name] += 1
            elif name not in self._first_without:
                self._first_without[name] = f"{file}, frame {index}"

    def require(self, partial: Sequence[str]) -> None:
        """Check that every frame carries every label except those in `partial`.

        Raises:
            ValueError: A label is missing in some frames, or in all; the message names the first
                frame and the remedy.
        """
        for name in self._labels:
            if name in partial or self.present[name] == self.n_frames:
                continue
            if self.present[name] == 0:
                raise ValueError(
                    f"{self.explain_absence(name)}, or list it under `partial` if other sources "
                    "have it"
                )
            n_missing = self.n_frames - self.present[name]
            raise ValueError(
                f"{self._source.name}: {name} is missing in {n_missing} of {self.n_frames} frames, "
                f"first in {self._first_without[name]}; list {name} under `partial` if that is "
                f"meant, or remove it from `labels`{_explain_need(name)}"
            )

    def explain_absence(self, name: str) -> str:
        """Return an error message: no frame carries the label `name`."""
        source = self._source
        problem = f"{source.name}: none of {self.n_frames} frames has {name}"
        if source.keys and name not in source.keys:
            return (
                f"{problem}: `keys` declares other labels, but not this one; add keys.{name}, or "
                f"remove {name} from `labels`"
            )
        description = describe(next(iter(source.files.values())), source.reader)
        explanation = explain_missing_label(description, name, source.keys.get(name, name))
        rename = f"set keys.{name} to its name in the file, or " if source.reader.keys else ""
        return f"{problem}: {explanation}; {rename}remove {name} from `labels`{_explain_need(name)}"


def _explain_need(name: str) -> str:
    return " (it needs three periodic directions)" if name == "stress" else ""
