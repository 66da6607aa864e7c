"""Progress of a training on standard error: a bar on a terminal, else one plain line an epoch."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from pipeline_core import hookimpl
from pipeline_core.config.sections import TrainOptions
from pipeline_core.hookspecs import Summary
from pipeline_core.run import Run
from pipeline_core.training.ranks import find_world


@hookimpl
def epoch(run: Run, record: Mapping[str, Any]) -> None:
    """Show a finished epoch."""
    epochs = run.section("train", TrainOptions).epochs
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(line(record, epochs), soft_wrap=True)
        return
    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(epochs, record["epoch"], width=20), line(record, epochs))
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


def line(record: Mapping[str, Any], epochs: int) -> str:
    """Return an epoch in words: losses, mean absolute errors in the engine's units, rate, speed."""
    parts = [f"epoch {record['epoch']:>{len(str(epochs))}}/{epochs}"]
    parts += [f"{split} {record[split]['loss']:.3e}" for split in ("train", "val") if record[split]]
    parts += [f"{n} {mae:.3e}" for n, mae in record["mae"].items() if mae is not None]
    parts += [f"lr {record['lr']:.1e}", f"{record['samples_per_s']:.3g} samples/s"]
    return "  ".join(parts)
