"""The largest structure that a process calculates within a limit of memory and of time."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Self

import psutil

from harness.sides import Side

GROWTH = 4.0
"""From one size to the next, while limits are far."""
WITHIN = 1.1
"""How much larger what does not fit may be than what does."""
CLOSE = 1.08
"""From what is expected to fit to what is not."""
SAFE = 0.96
"""Of the size at which limits are expected."""
_PAUSE = 0.02
"""Seconds between two looks at a process."""


@dataclass(frozen=True)
class Limits:
    """What a step may take.

    Attributes:
        memory: Of its process, bytes. Resident memory is counted: what is reserved and never used
            takes none.
        seconds: Of the step.
    """

    memory: float
    seconds: float


@dataclass(frozen=True)
class Attempt:
    """A step of one size.

    Attributes:
        atoms: Of the structure.
        stopped_by: "memory" or "time", whose limit was passed; None for a step that fits.
        seconds: Of the step, if it fits.
        peak: Most resident memory of the process, bytes, if it fits.
        grown: The same beyond what the process held before, without a structure.
    """

    atoms: int
    stopped_by: str | None = None
    seconds: float = 0.0
    peak: int = 0
    grown: int = 0

    def describe(self) -> dict[str, Any]:
        """Return what a report says of it."""
        if self.stopped_by is not None:
            return {"atoms": self.atoms, "stopped_by": self.stopped_by}
        figures = {
            "ms_per_atom": 1e3 * self.seconds / self.atoms,
            "kb_per_atom": 1e-3 * self.grown / self.atoms,
        }
        return asdict(self) | figures


class Watch(AbstractContextManager["Watch"]):
    """Ends a process that passes a limit.

    Args:
        side: The process.
        limits: Of the block.

    Attributes:
        stopped_by: "memory" or "time" when it has.
    """

    def __init__(self, side: Side, limits: Limits) -> None:
        self._process, self._limits = side.process, limits
        self._done, self._thread = threading.Event(), threading.Thread(target=self._look)
        self.stopped_by: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        end = time.monotonic() + self._limits.seconds
        while not self._done.wait(_PAUSE) and self._process.poll() is None:
            if read_resident(self._process.pid) > self._limits.memory:
                self.stopped_by = "memory"
            elif time.monotonic() > end:
                self.stopped_by = "time"
            if self.stopped_by is not None:
                self._process.kill()
                return


def read_resident(pid: int) -> int:
    """Return the resident memory of a process in bytes, zero when it has ended."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def find_largest(
    attempt: Callable[[int], Attempt], first: int, limits: Limits, most: int = 100
) -> list[Attempt]:
    """Try sizes until one fits, and what is `WITHIN` larger does not or would take too long.

    Args:
        attempt: Tries about so many atoms.
        first: Atoms to begin with.
        limits: Of each.
        most: Attempts after which the search ends.

    Returns:
        All attempts in their order.
    """
    attempts = [attempt(first)]
    while len(attempts) < most and (size := choose_next(attempts, limits)) is not None:
        attempts.append(attempt(size))
        if attempts[-1].atoms in (one.atoms for one in attempts[:-1]):
            break  # sizes are not as fine as that
    return attempts


def choose_next(attempts: Sequence[Attempt], limits: Limits) -> int | None:
    """Return the atoms to try next, None when the largest size is known."""
    fitting, failing = split_attempts(attempts)
    if not fitting:
        return round(failing[0].atoms / GROWTH)
    low = fitting[-1].atoms
    high = failing[0].atoms if failing else float("inf")
    most = low * limits.seconds / fitting[-1].seconds
    if min(high, most) <= WITHIN * low:
        return None
    expected = SAFE * min(most, project_memory(fitting, limits.memory))
    if not failing:
        return round(min(GROWTH * low, max(expected, CLOSE * low)))
    return round(expected if CLOSE * low < expected < high / CLOSE else (low * high) ** 0.5)


def project_memory(fitting: Sequence[Attempt], memory: float) -> float:
    """Return the atoms at which a line through the peaks of the two largest meets the limit."""
    last = fitting[-1]
    slope = last.grown / last.atoms
    if len(fitting) > 1:
        before = fitting[-2]
        slope = (last.peak - before.peak) / (last.atoms - before.atoms)
    return last.atoms + (memory - last.peak) / slope if slope > 0 else float("inf")


def split_attempts(attempts: Sequence[Attempt]) -> tuple[list[Attempt], list[Attempt]]:
    """Return attempts that fit and those that do not, by size."""
    by_size = sorted(attempts, key=lambda one: one.atoms)
    fitting = [one for one in by_size if one.stopped_by is None]
    return fitting, [one for one in by_size if one.stopped_by is not None]


def name_limit(attempts: Sequence[Attempt]) -> str:
    """Return what keeps a structure from being larger, "memory" or "time"."""
    _, failing = split_attempts(attempts)
    return failing[0].stopped_by or "time" if failing else "time"


def compare_largest(ours: Sequence[Attempt], peer: Sequence[Attempt]) -> tuple[float | None, str]:
    """Return how many times larger our largest is, and what that says of memory.

    It is "exact" (to `WITHIN`) if memory ended both, "at least" if time ended ours, "at most" if
    time ended the peer's, and "unknown", with no ratio, if time ended both.
    """
    limits = name_limit(ours), name_limit(peer)
    ratio = split_attempts(ours)[0][-1].atoms / split_attempts(peer)[0][-1].atoms
    if limits == ("time", "time"):
        return None, "unknown"
    return ratio, {("memory", "memory"): "exact", ("time", "memory"): "at least"}.get(
        limits, "at most"
    )
