"""Faults that are injected into artifacts, and what becomes of them.

The files of a finished run are damaged, one at a time, and read as stages read them. A damage is
`silent` after which something else is read without a word, a `traceback` an error that is no
message for a user, `hung` a read of more than ten seconds, `lost` a file that reading has changed.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from core.faults.subjects import Subject, Warnings, list_subjects
from pipeline_core.artifacts import store
from pipeline_core.project.run import Run
from pipeline_core.training.model_file import load_archive, save_archive
from resealed import edit_sealed

HUNG = 10
KINDS = ("lost", "hung", "traceback", "silent")
LATER = 99
FUTURE = 4e9  # seconds: in the year 2096

Random = np.random.Generator
Damage = Callable[[Path, Random], None]


class HungError(BaseException):
    """A read that takes too long; no reader catches it by catching everything."""


def on_content(change: Callable[[bytearray, int, Random], bytes | bytearray]) -> Damage:
    """Return a damage that changes the content from a random place on."""

    def damage(path: Path, random: Random) -> None:
        content = bytearray(path.read_bytes())
        path.write_bytes(change(content, int(random.integers(len(content))), random))

    return damage


def flip_bit(content: bytearray, place: int, random: Random) -> bytes | bytearray:
    """Flip one bit."""
    content[place] ^= 1 << int(random.integers(8))
    return content


def replace_file(put: Callable[[Path], None]) -> Damage:
    """Return a damage that puts something else in the place of the file."""

    def damage(path: Path, _: Random) -> None:
        path.unlink()
        put(path)

    return damage


def swap(others: Mapping[str, bytes]) -> Damage:
    """Return a damage that puts one of other files in the place of the file."""

    def damage(path: Path, random: Random) -> None:
        whole = path.read_bytes()
        contents = [content for content in others.values() if content != whole]
        path.write_bytes(contents[random.integers(len(contents))])

    return damage


def raise_version(path: Path, _: Random) -> None:
    """Make it the file of a later version of the package, with a seal that is right."""
    if path.suffix == ".pt":
        content = load_archive(path, "") | {"format": LATER}
        save_archive(path, content, store.read_provenance(path))
        return
    with edit_sealed(path) as file:
        file.attrs["schema_version"] = LATER


def take_rights(path: Path, _: Random) -> None:
    """Let nobody read it."""
    path.chmod(0)


def make_damages(run: Run, other: Run) -> dict[str, Damage]:
    """Return all damages but flipped bits, by name."""
    theirs = {one.name: one.path.read_bytes() for one in list_subjects(other)}
    ours = {one.name: one.path.read_bytes() for one in list_subjects(run)}
    return {
        "cut": on_content(lambda c, at, _: c[:at]),
        "appended": on_content(lambda c, at, _: c + c[at:]),
        "zeroed": on_content(lambda c, at, _: c[:at] + bytes(len(c[at:][:512])) + c[at + 512 :]),
        "lost part": on_content(lambda c, at, _: c[:at] + c[at + 64 :]),
        "doubled part": on_content(lambda c, at, _: c[: at + 64] + c[at:]),
        "no UTF-8": on_content(lambda c, at, _: c[:at] + b"\xff\xfe\x80" + c[at:]),
        "of the same run": swap(ours),
        "of another run": swap(theirs),
        "emptied": replace_file(Path.touch),
        "folder": replace_file(Path.mkdir),
        "link to nowhere": replace_file(lambda path: path.symlink_to("nowhere")),
        "link to itself": replace_file(lambda path: path.symlink_to(path)),
        "pipe": replace_file(os.mkfifo),
        "clock": lambda path, _: os.utime(path, (FUTURE, FUTURE)),
        "rights": take_rights,
        "later version": raise_version,
    }  # fmt: skip


def does_apply(damage: str, subject: Subject) -> bool:
    """Tell whether a damage is one to this file."""
    if damage == "later version":
        return subject.path.suffix in (".h5", ".pt")
    if damage.startswith("of "):  # what has no origin is of no run
        return not subject.name.startswith(("records", "hashes", "kept"))
    return not (damage == "rights" and os.geteuid() == 0)


@contextmanager
def keep(path: Path) -> Iterator[None]:
    """Give a file its content back."""
    whole, facts = path.read_bytes(), path.stat()
    try:
        yield
    finally:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        path.write_bytes(whole)
        path.chmod(facts.st_mode)
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def inject(subject: Subject, damage: Damage, count: int, seed: int = 0) -> Counter[str]:
    """Do a damage many times; count what became of it."""
    random, outcome, expected = np.random.default_rng(seed), Counter[str](), subject.read()
    for _ in range(count):
        with keep(subject.path):
            damage(subject.path, random)
            before = subject.path.read_bytes() if subject.path.is_file() else None
            outcome[judge(subject, expected)] += 1
            after = subject.path.read_bytes() if subject.path.is_file() else None
            outcome["lost"] += before != after and not subject.is_memory
    return outcome


def judge(subject: Subject, expected: Any) -> str:
    """Read a damaged file."""
    heard = Warnings()
    logging.getLogger().addHandler(heard)
    try:
        with limit_time():
            result = subject.read()
        if subject.is_right(expected, result):
            return "harmless"
        return "noticed" if subject.path.name in heard.text else "silent"
    except HungError:
        return "hung"
    except ValueError as error:
        return "noticed" if subject.path.name in str(error) else "traceback"
    except Exception:  # noqa: BLE001 - whatever it is, it is no message
        return "traceback"
    finally:
        logging.getLogger().removeHandler(heard)


@contextmanager
def limit_time() -> Iterator[None]:
    """Interrupt what takes too long."""

    def interrupt(*_: object) -> None:
        raise HungError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(HUNG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def list_cases(run: Run, other: Run, flips: int) -> Iterator[tuple[str, Subject, Damage, int]]:
    """Yield name, file, damage and how often it is done."""
    damages = make_damages(run, other)
    for subject in list_subjects(run):
        yield f"bit of {subject.name}", subject, on_content(flip_bit), flips
        for name, damage in damages.items():
            if does_apply(name, subject):
                is_fixed = name in list(damages)[-8:]
                yield f"{subject.name}: {name}", subject, damage, 1 if is_fixed else -(-flips // 10)
