"""Damaged inputs of every reader and of the HDF5 store, and what becomes of them.

    python tests/benchmarks/fuzz.py [--inputs 300] [--readers extxyz cp2k] [--seed 0]

Bytes are flipped, deleted and doubled, lines doubled, lost and swapped, numbers replaced, files
cut. Each reader runs in a process with 4 GB, each input for at most 10 s. The classes:

    refused      an error, or a bad frame, that names the file
    unchanged    all that is read is as before
    value        a number differs: no reader can tell one digit from another
    element      likewise a symbol
    shorter      a file cut behind a whole frame
    rows         a table that does not say its length has lost or doubled a row
    structure    frames, atoms or labels that are not those of the file: a failure
    traceback, hang, memory    failures
    broken       the sound file cannot be read: a failure

The last line printed is one JSON object.
"""

import argparse
import json
import multiprocessing
import re
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from _fuzz_subjects import Content, Subject, make_subjects

FAILURES = ("structure", "traceback", "hang", "memory", "broken")
LIMIT_S, LIMIT_BYTES = 10, 4 << 30
KINDS = (
    "flip", "delete", "double", "line_doubled", "line_lost", "lines_swapped", "number", "cut",
)  # fmt: skip
GARBAGE = (b"nan", b"inf", b"1e999", b"-1", b"999999999", b"1_0", b"x", b"", b"1.5", b"0")
NUMBER = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def mutate(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Return the kind of damage and the damaged content."""
    kind, at = str(rng.choice(KINDS)), int(rng.integers(len(content)))
    if kind == "flip":
        return kind, content[:at] + bytes([content[at] ^ (1 << rng.integers(8))]) + content[
            at + 1 :
        ]
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


def _end(*_: object) -> None:
    raise TimeoutError


def fuzz(subject: Subject, n_inputs: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Read damaged copies of a file; return classes and examples of failures."""
    content, counts, examples = subject.path.read_bytes(), Counter(), []
    sound = subject.read(subject.path)
    if None in sound or not sound:
        return Counter(broken=1), [f"{subject.name}: the sound file cannot be read"]
    signal.signal(signal.SIGALRM, _end)
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(subject.path.parent, f"{name}/f", dirs_exist_ok=True))
        path = folder / subject.path.name
        for number in range(n_inputs):
            kind, damaged = mutate(content, rng)
            path.write_bytes(damaged)
            outcome, what = attempt(subject, path, sound, kind)
            counts[outcome] += 1
            if outcome in FAILURES and len(examples) < 5:
                examples.append(f"{subject.name} {number} {kind}: {outcome} {what}")
    return counts, examples


def attempt(subject: Subject, path: Path, sound: list[Content], kind: str) -> tuple[str, str]:
    """Read one damaged file; return its class, and what was raised."""
    signal.alarm(LIMIT_S)
    try:
        return judge(sound, subject.read(path), kind, counted=subject.counted), ""
    except ValueError as error:
        named = path.name in str(error) or str(path.parent) in str(error)
        return ("refused" if named else "traceback"), f"unnamed: {error}"
    except TimeoutError:
        return "hang", ""
    except MemoryError as error:
        return "memory", repr(error)
    except Exception as error:  # noqa: BLE001 - which one is the question
        return "traceback", repr(error)[:200]
    finally:
        signal.alarm(0)


def _run(name: str, folder: str, n_inputs: int, seed: int, queue: multiprocessing.Queue) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    subject = next(s for s in make_subjects(Path(folder)) if s.name == name)
    queue.put(fuzz(subject, n_inputs, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--readers", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begin, by_reader = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        names = [subject.name for subject in make_subjects(Path(folder))]
    for name in args.readers or names:
        with tempfile.TemporaryDirectory() as folder:
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            process = context.Process(
                target=_run, args=(name, folder, args.inputs, args.seed, queue)
            )
            process.start()
            while process.is_alive() and queue.empty():  # else a full queue would never end it
                time.sleep(0.1)
            counts, examples = (
                (Counter(traceback=1), [f"{name}: died"]) if queue.empty() else queue.get()
            )
            process.join()
        by_reader[name] = dict(counts)
        print(name, dict(counts), *examples, sep="\n  ", flush=True)
    failed = sum(counts.get(kind, 0) for counts in by_reader.values() for kind in FAILURES)
    print(json.dumps({"name": "fuzz", "inputs_per_reader": args.inputs, "n_failed": failed,
                      "by_reader": by_reader, "seconds": time.perf_counter() - begin}))  # fmt: skip


if __name__ == "__main__":
    main()
