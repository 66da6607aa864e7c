"""`pipeline-core status --follow`: a screen that is updated, or lines without a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipeline_core.status.activity import Activity, State
from pipeline_core.status.lines import describe, format_overview, format_summary
from pipeline_core.status.overview import Overview

Display = Callable[[list[Overview]], None]
"""A function that shows overviews."""

_EVERY: Final = 2.0
"""Seconds between two updates."""
_PATIENCE: Final = 10.0
"""Seconds without a running stage after which following ends: stages need time to start."""
_LINE_EVERY: Final = 60.0
"""Seconds after which progress of a training within an epoch is reported."""


def follow_until_nothing_runs(
    read: Callable[[], list[Overview]],
    display: Display,
    sleep: Callable[[float], None] = time.sleep,
    snakemake: Path = Path(".snakemake"),
) -> None:
    """Read and show until nothing runs and no Snakemake will start anything, or Ctrl-C.

    Args:
        read: Returns the current overviews.
        display: Shows them.
        sleep: Waits for so many seconds.
        snakemake: Folder of Snakemake's locks.
    """
    quiet = 0.0
    try:
        while True:
            overviews = read()
            display(overviews)
            runs = any(one.is_running() for one in overviews)
            quiet = 0.0 if runs or is_locked(snakemake) else quiet + _EVERY
            if quiet > _PATIENCE:
                return
            sleep(_EVERY)
    except KeyboardInterrupt:
        return


def is_locked(snakemake: Path) -> bool:
    """Return True if a Snakemake works in a folder, or was killed there and not unlocked since."""
    return any((snakemake / "locks").glob("*"))


@contextmanager
def open_screen(console: Console, describe_end: Callable[[], str]) -> Iterator[Display]:
    """Yield a function that shows experiments on a terminal, replacing what it showed before.

    Experiments with running or failed stages are shown in full, others in one line.

    Args:
        console: The terminal.
        describe_end: Returns the last line, shown after the time.
    """
    # A line too long for a narrow terminal is cut: folded ones would not be overwritten.
    with Live(console=console, auto_refresh=False) as live:

        def show(overviews: list[Overview]) -> None:
            lines = [line for one in overviews for line in _format(one)]
            lines.append(f"{datetime.now():%H:%M:%S}  {describe_end()}")
            live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

        yield show


def _format(overview: Overview) -> list[str]:
    states = {activity.state for _, activity in overview.list_activities()}
    is_calm = states <= {"done", "waiting"}
    return format_summary(overview) if is_calm else [*format_overview(overview, brief=True), ""]


class News:
    """Reports changes since the last call.

    Args:
        write: Takes a line.
        clock: Counts seconds.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock = write, clock
        self._last: dict[tuple[str, str, str], tuple[tuple[State, int | None], float]] = {}

    def __call__(self, overviews: list[Overview]) -> None:
        """Write lines about stages that have changed their state, and about trainings."""
        for overview in overviews:
            for owner, activity in overview.list_activities():
                self._report(overview.experiment, owner, activity)

    def _report(self, experiment: str, owner: str, activity: Activity) -> None:
        key, now = (experiment, owner, activity.stage), self._clock()
        training = activity.training
        fact = (activity.state, None if training is None else training.epoch)
        before, reported = self._last.get(key, (None, now))
        is_late = training is not None and now - reported >= _LINE_EVERY
        if fact == before and not is_late:
            return
        self._last[key] = (fact, now)
        if before is None:  # the table has just been shown
            return
        if training is not None and activity.state == before[0]:
            activity = replace(activity, holder=None)  # it has been reported already
        words = filter(None, [f"{datetime.now():%H:%M:%S}", experiment, owner, activity.stage])
        name = " ".join(words)
        for line in describe(activity, name) or [f"{name}: {activity.state}"]:
            self._write(line.strip() if line.startswith(f"  {name}") else line)
