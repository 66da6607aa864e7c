"""Progress of a training on standard error: a bar on a terminal, else one plain line an epoch."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from pipeline_core import hookimpl
from pipeline_core.distributed.world import find_world
from pipeline_core.hookspecs import Summary
from pipeline_core.run import Run


@hookimpl
def epoch(run: Run, record: Mapping[str, Any]) -> None:
    """Show a finished epoch; the bar needs to know how many there will be."""
    # A plugin that trains in steps of its own names them, and has no number of epochs to reach.
    named = "step" in record
    epochs: int | None = None if named else getattr(run.sections["train"], "epochs", None)
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or epochs is None:
        console.print(format_epoch(record, epochs), soft_wrap=True)
        return
    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(epochs, record["epoch"], width=20), format_epoch(record, epochs))
    with console.capture() as shown:
        console.print(row, no_wrap=True, overflow="ellipsis")
    console.file.write(f"\r{shown.get().rstrip()}\033[K")  # over the bar of the epoch before
    console.file.flush()


@hookimpl(wrapper=True)
def train(run: Run) -> Generator[None, Summary | None, Summary | None]:
    """Leave the line of the bar when the training ends."""
    try:
        return (yield)
    finally:
        console = Console(stderr=True)
        if console.is_terminal and find_world().rank == 0:
            console.print()


def format_epoch(record: Mapping[str, Any], epochs: int | None) -> str:
    """Return an epoch in words: losses, mean absolute errors in the engine's units, rate, speed.

    Args:
        record: The line of the history; a plugin that trains by itself may leave out all but the
            number of the epoch.
        epochs: Length of the training, if it is known.
    """
    total = "" if epochs is None else f"/{epochs}"
    name = record.get("step", "epoch")
    parts = [f"{name} {record['epoch']:>{max(0, len(total) - 1)}}{total}"]
    losses = ((split, record.get(split)) for split in ("train", "val"))
    parts += [f"{split} {errors['loss']:.3e}" for split, errors in losses if errors]
    parts += [f"{n} {mae:.3e}" for n, mae in record.get("mae", {}).items() if mae is not None]
    parts += [f"lr {record['lr']:.1e}"] if "lr" in record else []
    parts += [f"{record['samples_per_s']:.3g} samples/s"] if "samples_per_s" in record else []
    return "  ".join(parts)
