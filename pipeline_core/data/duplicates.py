"""Detection of equal samples by their content, to keep them in one split.

Plugins use `Duplicates` for samples of their own that they read one by one, `find_first_rows` for
rows of a table, and pass the results to `splits.divide`.

Labels do not count: a sample that was calculated twice is one sample, with a label that a model
would have seen in training.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_DIGITS: Final = 8
_LISTED: Final = 20


class Duplicates:
    """Stores the content of every sample as hashes of 24 bytes, whatever its size.

    Of a million frames that differ, two have one hash of 64 bits with a probability of 3e-8.
    """

    def __init__(self) -> None:
        self._frames, self._labels = array("Q"), array("Q")
        self._copies, self._files = array("I"), array("I")
        self._file_numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, file: str, content: tuple[int, int], n_copies: int = 1) -> None:
        """Add a sample.

        Args:
            file: The file that it comes from.
            content: As `hash_content` returns it.
            n_copies: How often the sample repeats the frame with this content.
        """
        frame, labels = content
        self._frames.append(frame)
        self._labels.append(labels)
        self._copies.append(n_copies)
        self._files.append(self._file_numbers.setdefault(file, len(self._file_numbers)))

    def append(self, others: Duplicates) -> None:
        """Add the samples of another instance."""
        numbered = self._file_numbers
        numbers = [numbered.setdefault(file, len(numbered)) for file in others._file_numbers]
        self._frames.extend(others._frames)
        self._labels.extend(others._labels)
        self._copies.extend(others._copies)
        self._files.extend(numbers[n] for n in others._files)

    def find_first(self, begin: int = 0) -> Ints:
        """Return for each sample from `begin` on the first of them with an equal frame.

        Returns:
            Numbers from 0 on, counted from `begin`, (n_samples - begin,).
        """
        _, first, inverse = np.unique(
            np.array(self._frames)[begin:], return_index=True, return_inverse=True
        )
        return np.asarray(first[inverse], dtype=np.int64)

    def report(self) -> dict[str, Any]:
        """Return the number of repeated samples, in total, by file, and with other labels."""
        pairs = list(self._iterate_pairs())
        names = list(self._file_numbers)
        between: dict[str, int] = {}
        for earlier, later, _ in pairs:
            key = f"{names[earlier]} and {names[later]}" if earlier != later else names[later]
            between[key] = between.get(key, 0) + 1
        most = sorted(between.items(), key=lambda item: -item[1])[:_LISTED]
        return {
            "samples": len(pairs),
            "with_other_labels": sum(differ for _, _, differ in pairs),
            "files": dict(most),
        }

    def _iterate_pairs(self) -> Iterator[tuple[int, int, bool]]:
        """Yield (file, file, do labels differ) for the first of equal samples and every other."""
        frames, copies = np.array(self._frames), np.array(self._copies)
        order = np.lexsort([copies, frames])  # stable: the first of equal ones comes first
        same = frames[order[1:]] == frames[order[:-1]]
        same &= copies[order[1:]] == copies[order[:-1]]
        first = -1
        for place in np.flatnonzero(same).tolist():
            if place == 0 or not same[place - 1]:
                first = int(order[place])
            later = int(order[place + 1])
            yield self._files[first], self._files[later], self._labels[first] != self._labels[later]


def hash_content(
    inputs: Iterable[NDArray[Any]], labels: Iterable[NDArray[Any]] = ()
) -> tuple[int, int]:
    """Return the hashes of the inputs and the labels of a sample of any kind.

    Args:
        inputs: Inputs of a model; equal samples agree in these to 1e-8.
        labels: Quantities to predict.
    """
    return _hash_arrays(inputs), _hash_arrays(labels)


def describe_duplicates(report: Mapping[str, Any], what: str) -> Iterator[str]:
    """Yield the warning on equal samples, if there are any.

    Args:
        report: As `Duplicates.report` returns it.
        what: The equal part of the samples, such as "the structure".
    """
    n_samples, n_other = report["samples"], report["with_other_labels"]
    where = ", ".join(f"{n} in {files}" for files, n in list(report["files"].items())[:3])
    other = f", {n_other} of them with other labels" if n_other else ""
    if n_samples:
        yield (
            f"{n_samples} samples have {what} of an earlier one{other} ({where}); equal samples "
            "are in one split, and all of them are held out where one is; remove copies that are "
            "not meant"
        )


def find_first_rows(rows: NDArray[np.float64]) -> Ints:
    """Return for each row of a table, (n, d), the first one that equals it to 1e-8, (n,)."""
    exact = np.round(rows, _DIGITS) + 0.0
    _, first, inverse = np.unique(exact, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.reshape(-1)], dtype=np.int64)


def _hash_arrays(arrays: Iterable[NDArray[Any]]) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for values in arrays:
        is_real = values.dtype.kind in "fc"
        exact = np.round(values, _DIGITS) + 0.0 if is_real else values  # minus zero is zero
        digest.update(np.ascontiguousarray(exact).tobytes())
    return int.from_bytes(digest.digest(), "little")


def unite_splits(codes: NDArray[np.int8], first: Ints) -> NDArray[np.int8]:
    """Put equal frames into one split: held out together if one of them is.

    Args:
        codes: Split of each sample, (n_samples,), indices of `SPLITS`; negative for none.
        first: As `Duplicates.find_first` returns it, (n_samples,).

    Returns:
        (n_samples,)
    """
    highest = codes.copy()
    np.maximum.at(highest, first, codes)
    return highest[first]
