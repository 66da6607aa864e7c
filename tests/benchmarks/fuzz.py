"""Damaged inputs of every reader, of the HDF5 store and of YAML, and what becomes of them.

    python tests/benchmarks/fuzz.py [--inputs 300] [--readers extxyz cp2k] [--seed 0]
    python tests/benchmarks/fuzz.py --inputs 10000    # the whole; half an hour of two cores
    python tests/benchmarks/fuzz.py --readers extxyz --only 4711    # one input again, in full

Bytes are flipped, deleted and doubled, lines doubled, lost and swapped, numbers replaced, files
cut. Readers run in processes with 4 GB each, as many at a time as there are cores
(`--processes`); an input may take 10 s. The classes:

    refused      an error, or a bad frame, that names the file
    unchanged    all that is read is as before
    value        a number differs: no reader can tell one digit from another
    element      likewise a symbol
    shorter      a file cut behind a whole frame
    rows         a table that does not say its length has lost or doubled a row
    structure    frames, atoms or labels that are not those of the file: a failure
    traceback, hang, memory, died    failures
    broken       the sound file cannot be read: a failure

The last line printed is one JSON object; its `n_failed` is to be 0.
"""

import argparse
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np
from _fuzz_configuration import make_configuration_subjects
from _fuzz_plugins import make_plugin_subjects
from _fuzz_subjects import Content, Subject, make_subjects
from _machine import describe_host

FAILURES = ("structure", "traceback", "hang", "memory", "died", "broken")
LIMIT_S, LIMIT_BYTES, SHARE = 10, 4 << 30, 1000
KINDS = (
    "flip", "delete", "double", "line_doubled", "line_lost", "lines_swapped", "number", "cut",
)  # fmt: skip
GARBAGE = (b"nan", b"inf", b"1e999", b"-1", b"999999999", b"1_0", b"x", b"", b"1.5", b"0")
NUMBER = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


class Hang(BaseException):
    """An input that takes too long; no reader catches it by catching everything."""


def make_all_subjects(folder: Path) -> list[Subject]:
    """Write all files that are damaged."""
    makers = (make_subjects, make_plugin_subjects, make_configuration_subjects)
    return [subject for make in makers for subject in make(folder)]


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


def fuzz(subject: Subject, numbers: range, seed: int) -> Iterator[tuple[str, str]]:
    """Read damaged copies of a file.

    Yields:
        For each number the class, and in words what happened.
    """
    content, sound = subject.path.read_bytes(), subject.read(subject.path)
    if None in sound or not sound:
        yield "broken", "the sound file cannot be read"
        return
    before = signal.signal(signal.SIGALRM, _end)
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
        signal.signal(signal.SIGALRM, before)


def _end(*_: object) -> None:
    raise Hang


def attempt(subject: Subject, path: Path, sound: list[Content], kind: str) -> tuple[str, str]:
    """Read one damaged file; return its class, and what was raised."""
    signal.alarm(LIMIT_S)
    try:
        return judge(sound, subject.read(path), kind, counted=subject.counted), ""
    except ValueError as error:
        named = path.name in str(error) or str(path.parent) in str(error)
        return ("refused" if named else "traceback"), f"{'' if named else 'unnamed: '}{error}"
    except Hang:
        return "hang", "".join(traceback.format_exc().splitlines()[-5:])
    except MemoryError as error:
        return "memory", repr(error)
    except Exception as error:  # noqa: BLE001 - which one is the question
        return "traceback", repr(error)[:200]
    finally:
        signal.alarm(0)


@dataclass
class Share:
    """Inputs of one reader that a process reads one after the other."""

    subject: Subject
    numbers: range
    process: multiprocessing.process.BaseProcess | None = None
    heard: float = 0.0


def _work(subject: Subject, numbers: range, seed: int, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    for outcome in fuzz(subject, numbers, seed):
        sender.send(outcome)


def run_shares(shares: deque[Share], n_processes: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Read all shares in several processes; yield reader, class and words of each input.

    The input at which a process dies, or says nothing for long, has failed; another one goes on.
    """
    context = multiprocessing.get_context("fork")
    running: dict[Connection, Share] = {}
    while shares or running:
        while shares and len(running) < n_processes:
            share = shares.popleft()
            receiver, sender = context.Pipe(duplex=False)
            share.process = context.Process(
                target=_work, args=(share.subject, share.numbers, seed, sender)
            )
            share.process.start()
            sender.close()
            share.heard = time.monotonic()
            running[receiver] = share
        ready = wait(list(running), timeout=1)
        for receiver, share in list(running.items()):
            if receiver in ready:
                share.heard = time.monotonic()
                try:
                    outcome, what = receiver.recv()
                except EOFError:
                    del running[receiver]
                    share.process.join()
                    if not share.numbers:
                        continue
                    outcome, what = "died", f"{share.numbers[0]}: exit {share.process.exitcode}"
                    shares.appendleft(Share(share.subject, share.numbers[1:]))
                share.numbers = share.numbers[len(share.numbers) if outcome == "broken" else 1 :]
                yield share.subject.name, outcome, what
            elif time.monotonic() - share.heard > 6 * LIMIT_S:
                share.process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--readers", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--only", type=int, help="number of one input, with what it gives")
    args = parser.parse_args()
    begin, by_reader, examples = time.perf_counter(), {}, {}
    with tempfile.TemporaryDirectory() as folder:
        subjects = make_all_subjects(Path(folder))
        subjects = [s for s in subjects if not args.readers or s.name in args.readers]
        if args.only is not None:
            for subject in subjects:
                print(subject.name, *fuzz(subject, range(args.only, args.only + 1), args.seed))
            return
        shares = deque(
            Share(subject, range(args.inputs)[start : start + SHARE])
            for subject in subjects
            for start in range(0, args.inputs, SHARE)
        )
        for name, outcome, what in run_shares(shares, args.processes, args.seed):
            by_reader.setdefault(name, Counter())[outcome] += 1
            if outcome in FAILURES:
                examples.setdefault(name, []).append(f"{outcome} {what}")
    for name, counts in by_reader.items():
        print(name, dict(counts), *examples.get(name, [])[:10], sep="\n  ")
    failed = sum(counts[kind] for counts in by_reader.values() for kind in FAILURES)
    counts = {"inputs_per_reader": args.inputs, "n_failed": failed, "by_reader": by_reader}
    seconds = time.perf_counter() - begin
    machine = describe_host("ase", "h5py", "pymatgen")
    print(json.dumps({"name": "fuzz", **counts, "seconds": seconds, **machine}))


if __name__ == "__main__":
    main()
