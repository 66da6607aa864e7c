"""Progress of a training on standard error: a bar on a terminal, else a plain line per epoch.

A line is as wide as the terminal, 80 columns without one (`COLUMNS` overrides this). The most
important values come first: beside the bar those without room are left out, else they wrap.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from pipeline_core import hookimpl
from pipeline_core.distributed.world import find_world
from pipeline_core.figures.quantities import find_quantity
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import Run
from pipeline_core.status.pace import Position, count_done, format_duration

_BAR: Final = 7
"""Columns of the bar."""
_QUIET: Final = 60.0
"""Seconds without a line after which one is written within an epoch."""


class ProgressLines:
    """Progress display of one training.

    Args:
        clock: Returns the time, s.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._shown = clock, clock()
        self._position: Position | None = None
        self._has_bar = False

    @hookimpl
    def progress(self, run: Run, position: Position) -> None:
        """Show the progress within an epoch: the bar, or a line after a long time."""
        self._position = position
        console = Console(stderr=True, highlight=False)
        waits = self._clock() - self._shown < _QUIET
        if position.step and not (waits and not console.is_terminal):
            self._show(console, list_position(position), position.fraction)

    @hookimpl
    def epoch(self, run: Run, record: Mapping[str, Any]) -> None:
        """Show a finished epoch; the bar needs a planned number of epochs."""
        # A plugin with steps of its own names them, and has no planned number of epochs.
        named = "step" in record
        epochs = None if named else run.planned_epochs
        position = self._position
        if position is not None and position.epoch != record["epoch"]:
            position = None  # a plugin that trains by itself may report none
        fraction, left, until = record["epoch"] / epochs if epochs else None, None, None
        if position is not None and not named and (epochs or position.budget):
            fraction, left, until = position.fraction, position.estimate_left(), position.until
        console = Console(stderr=True, highlight=False)
        self._show(console, list_epoch(record, epochs, left, until), fraction)

    @hookimpl(wrapper=True)
    def train(self, run: Run) -> Generator[None, Summary | None, Summary | None]:
        """End the line of the bar when the training ends."""
        self._position, self._shown, self._has_bar = None, self._clock(), False
        try:
            return (yield)
        finally:
            if self._has_bar and find_world().rank == 0:
                _write(Console(stderr=True), "\n")

    def _show(self, console: Console, parts: Iterable[str], fraction: float | None) -> None:
        self._shown = self._clock()
        if not console.is_terminal or fraction is None:
            _write(console, "\n".join(fold(parts, console.width)) + "\n")
            return
        self._has_bar = True
        row = Table.grid(padding=(0, 1))
        # A terminal goes to the next line if its last column is written.
        text = fold(parts, console.width - _BAR - 2)[0]
        row.add_row(ProgressBar(1.0, fraction, width=_BAR), text)
        with console.capture() as shown:
            console.print(row, no_wrap=True, overflow="ellipsis")
        _write(console, f"\r{shown.get().rstrip()}\033[K")  # over what was there before


def _write(console: Console, text: str) -> None:
    """Write text; a full disk or a closed pipe does not end the training."""
    with suppress(OSError):
        console.file.write(text)
        console.file.flush()


def list_position(position: Position) -> list[str]:
    """Return the progress within an epoch in words, the most important first."""
    done, of = (position.epoch, position.step), (position.epochs, position.steps)
    return [
        count_done("epoch", done, of),
        *_list_losses(position.loss, position.val_loss),
        *_list_times(position.estimate_left(), position.until, position.samples_per_s),
    ]


def list_epoch(
    record: Mapping[str, Any],
    epochs: int | None,
    left: float | None = None,
    until: float | None = None,
) -> list[str]:
    """Return an epoch in words, the most important first: losses, time left, speed, errors.

    Args:
        record: The line of the history; a plugin that trains by itself may leave out all but the
            number of the epoch.
        epochs: Planned number of epochs; None if there is none.
        left: Estimated remaining time, s; None without an estimate.
        until: Time of its end, in seconds since 1970, if its time is limited.
    """
    losses = ((record.get(split) or {}).get("loss") for split in ("train", "val"))
    return [
        count_done(record.get("step", "epoch"), (record["epoch"], 0), (epochs, 0)),
        *_list_losses(*losses),
        *_list_times(left, until, record.get("samples_per_s")),
        *_list_errors(record.get("mae", {})),
        *([f"lr {record['lr']:.1e}"] if "lr" in record else []),
    ]


def fold(parts: Iterable[str], width: int) -> list[str]:
    """Return parts in lines, with two spaces between; all lines but the first are indented."""
    lines = [""]
    for part in parts:
        if lines[-1].strip() and len(lines[-1]) + 2 + len(part) > width:
            lines.append("  ")
        lines[-1] += f"  {part}" if lines[-1] else part
    return lines


def _list_losses(train: float | None, val: float | None) -> list[str]:
    named = (("train", train), ("val", val))
    return [f"{split} {loss:.2e}" for split, loss in named if loss is not None]


def _list_times(left: float | None, until: float | None, rate: float | None) -> list[str]:
    clock = "" if until is None else f" (until {datetime.fromtimestamp(until):%H:%M:%S})"
    return [
        *([] if left is None else [f"{format_duration(left)} left{clock}"]),
        *([] if rate is None else [f"{rate:.3g} samples/s"]),
    ]


def _list_errors(errors: Mapping[str, float | None]) -> list[str]:
    """Return mean absolute errors in the units of the figures."""
    shown = [(find_quantity(name), error) for name, error in errors.items() if error is not None]
    return [f"{q.title} {q.error_factor * e:.3g} {q.error_unit}".rstrip() for q, e in shown]


PROGRESS: Final = ProgressLines()
