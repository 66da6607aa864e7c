"""`snakemake --logger pipeline`: progress of experiments in place of Snakemake's own messages.

On a terminal a live display, else one line per change. Of Snakemake's messages, errors and warnings
stay; a dry run and all output before the first job are as without the plugin.
"""

import threading
from contextlib import ExitStack
from logging import WARNING, LogRecord
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from pipeline_core.cli.status_follow import Display, News, open_screen
from pipeline_core.status.lines import read_end
from pipeline_core.workflow.rules import Plan

_EVERY: Final = 2.0
"""Seconds between two updates."""
_FAILED_COMMAND: Final = "CalledProcessError"
"""Part of a message that repeats the shell command of a job, before the error itself."""


class LogHandler(LogHandlerBase):
    """Log handler that shows the progress of Snakemake's experiments."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = False
    needs_rulegraph = False

    def __post_init__(self) -> None:
        """Start with an empty display."""
        self._console = Console(stderr=not self.common_settings.stdout, highlight=False)
        self._open = ExitStack()
        self._display: Display | None = None
        self._jobs = "no job has ended"
        self._is_over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def emit(self, record: LogRecord) -> None:
        """Show a message, or start the display at the first job."""
        try:
            self._handle(record)
        except Exception:  # noqa: BLE001 - as all handlers of `logging`
            self.handleError(record)

    def close(self) -> None:
        """Show the final state, and leave it on the terminal."""
        self._is_over.set()
        if self._ticker.is_alive():
            self._ticker.join()
            self._show()
        self._open.close()
        super().close()

    def _handle(self, record: LogRecord) -> None:
        event = getattr(record, "event", None)
        starts = event == LogEvent.JOB_STARTED and not self.common_settings.dryrun
        if self._display is None and starts and Plan.latest is not None:
            self._start()
        elif event == LogEvent.PROGRESS:
            facts: Any = record
            self._jobs = f"{facts.done} of {facts.total} jobs have ended"
        if self._display is None:
            self._print(self.format(record))
        elif event == LogEvent.JOB_ERROR:
            self._print(_describe_error(record))
        elif record.levelno >= WARNING and _FAILED_COMMAND not in record.getMessage():
            self._print(self.format(record))

    def _start(self) -> None:
        is_terminal = self._console.is_terminal
        self._display = (
            self._open.enter_context(open_screen(self._console, lambda: self._jobs))
            if is_terminal
            else News(self._print)
        )
        self._show()
        self._ticker.start()

    def _tick(self) -> None:
        while not self._is_over.wait(_EVERY):
            self._show()

    def _show(self) -> None:
        if self._display is not None and Plan.latest is not None:
            self._display(Plan.latest.read_overviews())

    def _print(self, text: str) -> None:
        if text and text != "None":
            self._console.print(text, markup=False, soft_wrap=True)


def _describe_error(record: LogRecord) -> str:
    """Return the name of the failed job, and the ends of its logs."""
    facts: Any = record
    lines = [f"{facts.rule_name} has failed (job {facts.jobid})"]
    for log in facts.log:
        lines += [f"  end of {log}:", *(f"  | {line}" for line in read_end(Path(log)))]
    return "\n".join(lines)


__all__ = ["LogHandler"]
