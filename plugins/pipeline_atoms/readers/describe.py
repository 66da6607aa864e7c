"""Contents of the first frames of a file, and suggestions for the name of a missing label."""

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from pipeline_atoms.readers import BadFrame, Floats, Reader
from pipeline_atoms.readers.catalogue import open_frames


@dataclass(frozen=True)
class Value:
    """A value that frames carry.

    Attributes:
        n_frames: Number of frames that carry it.
        shape: Its shape as text, "n" for a length that varies.
        minimum: Its smallest element.
        maximum: Its largest element.
    """

    n_frames: int
    shape: str
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Description:
    """Contents of the first frames of a file.

    Attributes:
        n_frames: Number of good frames.
        bad: Reasons of bad frames, with the number of each.
        n_atoms: Smallest and largest number of atoms.
        elements: Z of all elements.
        values: For a format with free names of labels, all numeric values under their names in the
            file; for another format, the labels.
    """

    n_frames: int
    bad: Mapping[str, int]
    n_atoms: tuple[int, int]
    elements: tuple[int, ...]
    values: Mapping[str, Value]


def describe(path: Path, reader: Reader, limit: int = 50) -> Description:
    """Describe the first frames of a file.

    Args:
        path: The file.
        reader: Its format.
        limit: Number of frames.

    Raises:
        ValueError: The file cannot be read at all.
    """
    sizes, elements, bad, labels = [], set(), Counter[str](), []
    for frame in islice(open_frames(path, reader, {}), limit):
        if isinstance(frame, BadFrame):
            bad[frame.reason] += 1
            continue
        sizes.append(len(frame.atomic_numbers))
        elements.update(frame.atomic_numbers.tolist())
        labels.append(frame.labels)
    given = islice(reader.values(path), len(sizes)) if reader.values else labels
    return Description(
        n_frames=len(sizes),
        bad=bad,
        n_atoms=(min(sizes, default=0), max(sizes, default=0)),
        elements=tuple(sorted(elements)),
        values=_summarize(given),
    )


def _summarize(frames: Iterable[Mapping[str, Floats]]) -> dict[str, Value]:
    arrays: dict[str, list[Floats]] = defaultdict(list)
    for frame in frames:
        for name, array in frame.items():
            arrays[name].append(array)
    return {name: _describe_value(arrays[name]) for name in sorted(arrays)}


def _describe_value(arrays: list[Floats]) -> Value:
    filled = [array for array in arrays if array.size] or [np.zeros(1)]
    return Value(
        n_frames=len(arrays),
        shape=_find_common_shape({array.shape for array in arrays}),
        minimum=min(float(array.min()) for array in filled),
        maximum=max(float(array.max()) for array in filled),
    )


def _find_common_shape(shapes: set[tuple[int, ...]]) -> str:
    if len({len(shape) for shape in shapes}) > 1:
        return "various"
    lengths = [set(axis) for axis in zip(*shapes, strict=True)]
    return "(" + ", ".join(str(*axis) if len(axis) == 1 else "n" for axis in lengths) + ")"


def explain_missing_label(description: Description, label: str, key: str) -> str:
    """Return an error message for a missing label, with suggestions for its name.

    Args:
        description: Contents of the file.
        label: Field name, such as "energy".
        key: Name under which the label was searched.

    Returns:
        A sentence without the final period.
    """
    names = list(description.values)
    n_found = description.values[key].n_frames if key in names else 0
    alike = [name for name in names if label.removesuffix("s") in name.lower()]
    near = list(dict.fromkeys([*difflib.get_close_matches(key, names, cutoff=0.7), *alike]))
    hint = f"; did you mean {' or '.join(map(repr, near[:3]))}?" if near and not n_found else ""
    if label == "stress" and any("virial" in name.lower() for name in names):
        hint += "; a virial is there: write stress = -virial / volume into the file"
    return (
        f"{label} was found under {key!r} in {n_found} of {description.n_frames} frames; "
        f"the file has {', '.join(names) or 'no numeric values'}{hint}"
    )
