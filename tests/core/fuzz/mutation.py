"""Damaged inputs of every reader, of the HDF5 store and of YAML, and what becomes of them.

Bytes are flipped, deleted and doubled, lines doubled, lost and swapped, numbers replaced, files
cut. An input may take 10 s and 4 GB. The classes:

    refused      an error, or a bad frame, that names the file
    unchanged    all that is read is as before
    value        a number differs: no reader can tell one digit from another
    element      likewise a symbol
    shorter      a file cut behind a whole frame
    rows         a table that does not say its length has lost or doubled a row
    structure    frames, atoms or labels that are not those of the file: a failure
    traceback, hang, memory    failures
    broken       the sound file cannot be read: a failure
"""

import os
import re
import resource
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from core.faults.injection import HungError, flip_bit, limit_time
from core.fuzz import configuration, plugins, subjects
from core.fuzz.subjects import Content, Subject

FAILURES = ("structure", "traceback", "hang", "memory", "broken")
LIMIT_BYTES = 4 << 30
KINDS = (
    "flip", "delete", "double", "line_doubled", "line_lost", "lines_swapped", "number", "cut",
)  # fmt: skip
GARBAGE = (b"nan", b"inf", b"1e999", b"-1", b"999999999", b"1_0", b"x", b"", b"1.5", b"0")
NUMBER = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def make_all_subjects(folder: Path) -> list[Subject]:
    """Write all files that are damaged."""
    makers = [make for module in (subjects, plugins, configuration) for make in module.MAKERS]
    return [subject for make in makers for subject in make(folder)]


def mutate(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Return the kind of damage and the damaged content."""
    kind, at = str(rng.choice(KINDS)), int(rng.integers(len(content)))
    if kind == "flip":
        return kind, bytes(flip_bit(bytearray(content), at, rng))
    if kind == "delete":
        return kind, content[:at] + content[at + 1 :]
    if kind == "double":
        return kind, content[: at + 1] + content[at:]
    if kind == "cut":
        return kind, content[:at]
    if kind == "number":
        # The nearest number behind a random place: all of a long file would take too long to find.
        match = NUMBER.search(content, at) or NUMBER.search(content)
        if match:
            new = GARBAGE[rng.integers(len(GARBAGE))]
            return kind, content[: match.start()] + new + content[match.end() :]
    lines = content.splitlines(keepends=True)
    i = int(rng.integers(len(lines)))
    if kind == "line_lost":
        del lines[i]
    elif kind == "line_doubled":
        lines.insert(i, lines[i])
    elif len(lines) > 1:
        i = min(i, len(lines) - 2)
        lines[i : i + 2] = lines[i + 1], lines[i]
    return kind, b"".join(lines)


def judge(
    sound: list[Content], read: list[Content | None], kind: str, *, counted: bool = True
) -> str:
    """Return the class of what has been read of a damaged file."""
    good = [frame for frame in read if frame is not None]
    if not counted and any(
        {len(a) for a in frame.values()} != {len(a) for a in own.values()}
        for frame, own in zip(good, sound, strict=True)
    ):
        return "rows"
    if len(good) > len(sound) or any(_is_wrong(frame, sound) for frame in good):
        return "structure"
    if len(good) < len(read):
        return "refused"
    if len(good) < len(sound):
        is_start = all(_equals(a, b) for a, b in zip(good, sound, strict=False))
        return "shorter" if kind == "cut" and is_start else "structure"
    if all(_equals(a, b) for a, b in zip(good, sound, strict=True)):
        return "unchanged"
    changed = any(_differ(a, b, "species") for a, b in zip(good, sound, strict=True))
    return "element" if changed else "value"


def _is_wrong(frame: Content, sound: list[Content]) -> bool:
    """Say whether arrays have sizes of no frame, or come from several."""
    shapes = {name: array.shape for name, array in frame.items()}
    if not any(shapes.items() <= {n: a.shape for n, a in own.items()}.items() for own in sound):
        return True
    origins = [
        {i for i, own in enumerate(sound) if np.array_equal(own.get(name), frame[name])}
        for name in ("positions", "forces", "energy")
        if name in frame
    ]
    known = [origin for origin in origins if origin]
    return bool(known) and not set.intersection(*known)


def _differ(a: Content, b: Content, name: str) -> bool:
    return name in a and not np.array_equal(a[name], b[name])


def _equals(a: Content, b: Content) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)


def fuzz(subject: Subject, numbers: range, seed: int) -> Iterator[tuple[str, str]]:
    """Read damaged copies of a file.

    Yields:
        For each number the class, and in words what happened.
    """
    content, sound = subject.path.read_bytes(), subject.read(subject.path)
    if None in sound or not sound:
        yield "broken", "the sound file cannot be read"
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    held = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (held + LIMIT_BYTES, limits[1]))
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - spares the disk
    try:
        with tempfile.TemporaryDirectory(dir=place) as name, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(shutil.copytree(subject.path.parent, f"{name}/f")) / subject.path.name
            for number in numbers:
                kind, damaged = mutate(content, np.random.default_rng([seed, number]))
                path.write_bytes(damaged)
                outcome, what = attempt(subject, path, sound, kind)
                yield outcome, f"{number} {kind}: {what}"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def attempt(subject: Subject, path: Path, sound: list[Content], kind: str) -> tuple[str, str]:
    """Read one damaged file; return its class, and what was raised."""
    try:
        with limit_time():
            return judge(sound, subject.read(path), kind, counted=subject.counted), ""
    except ValueError as error:
        named = path.name in str(error) or str(path.parent) in str(error)
        return ("refused" if named else "traceback"), f"{'' if named else 'unnamed: '}{error}"
    except HungError:
        return "hang", "".join(traceback.format_exc().splitlines()[-5:])
    except MemoryError as error:
        return "memory", repr(error)
    except Exception as error:  # noqa: BLE001 - which one is the question
        return "traceback", repr(error)[:200]
