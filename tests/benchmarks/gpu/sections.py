"""Sections of a measurement on a GPU, in order, with their time limits."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
TESTS: Final = "tests"
DRY_RUN: Final = 5
"""Times as long may a section of the dry run take: a processor may be busy with other work."""
MARKS: Final = ("mark.gpu", "KernelContract)")
"""In files that have tests for a GPU."""
MOST_SECONDS: Final = 660
"""Of all sections together."""


@dataclass(frozen=True)
class Section:
    """A benchmark, or the tests.

    Attributes:
        name: Of the file that its report is written to.
        script: Below `tests/benchmarks`; none for the tests.
        options: Of the script on a GPU.
        seconds: After which it is ended; what it has printed by then is kept.
    """

    name: str
    script: str | None
    options: tuple[str, ...]
    seconds: int


SECTIONS: Final = (
    Section(TESTS, None, (), 150),
    Section("mace_step_e3nn", "mace_step", ("--full", "--repeats=3"), 110),
    Section(
        "mace_step_cuequivariance",
        "mace_step",
        ("--full", "--repeats=3", "--peer-kernels=cuequivariance"),
        110,
    ),
    Section("chgnet_step", "chgnet_step", ("--full", "--repeats=3"), 90),
    Section("chgnet_infer", "chgnet_infer", ("--repeats=3",), 60),
    Section("message_ops", "message_ops", (), 40),
    Section("htfbr_epoch", "htfbr_epoch", (), 90),
)
assert sum(section.seconds for section in SECTIONS) <= MOST_SECONDS


def list_tests() -> list[str]:
    """Return the files with tests for a GPU: kernels first, the smallest before the others."""
    found = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if any(word in path.read_text(encoding="utf-8") for word in MARKS)
    ]
    names = [path.relative_to(ROOT).as_posix() for path in found]
    return sorted(names, key=lambda name: (not name.startswith("tests/kernels"), name))


def make_command(section: Section, device: str, data: str | None) -> list[str]:
    """Return what a section runs; on a CPU at its smallest size.

    Args:
        section: One of `SECTIONS`.
        device: "cuda" or "cpu".
        data: File with the crystals of MPtrj, if not the usual one.
    """
    if section.script is None:
        options = ["-m", "gpu", "--quiet", "-p", "no:cacheprovider"]
        # Without a GPU they are collected and skipped.
        return [sys.executable, "-m", "pytest", *options, *list_tests()]
    command = [sys.executable, f"tests/benchmarks/{section.script}.py", f"--device={device}"]
    command += section.options if device == "cuda" else ["--small"]
    reads_crystals = section.script.startswith(("mace", "chgnet"))
    return command + ([f"--data={data}"] if data and reads_crystals else [])
