"""Output of `pipeline-core status`, in lines of 80 columns."""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from textwrap import shorten, wrap
from typing import Final

from pipeline_core.status.activity import Activity, State, Training
from pipeline_core.status.output import align
from pipeline_core.status.overview import Overview
from pipeline_core.status.pace import count_done, format_duration

WIDTH: Final = 80
_LONGEST_NAME: Final = 20
"""Columns of a variant's name in the table; running stages have its full name."""
_BRIEF: Final = 100
"""Characters of the cause of a failure in brief output."""
_LAST_LINES: Final = 10
"""Lines of the log of a failed stage that are shown."""
_STATES: Final[tuple[State, ...]] = ("running", "failed", "waiting", "done")


def format_overview(overview: Overview, *, brief: bool = False) -> list[str]:
    """Return an experiment as a table of its variants, with details of running or failed stages.

    Args:
        overview: The experiment.
        brief: True to shorten causes of failures, so that the screen has room.
    """
    data = [f"data of {name} {one.state}" for name, one in overview.datasets.items()]
    facts = ", ".join([*data, f"figures {overview.figures.state}"])
    stages = max(map(list, overview.runs.values()), key=len)
    rows = [
        [f"  {_shorten(variant)}", *(run[s].state if s in run else "-" for s in stages)]
        for variant, run in overview.runs.items()
    ]
    table = align([["  variant", *stages], *rows]).splitlines()
    details = [
        line
        for owner, one in overview.list_activities()
        for line in describe(one, f"{owner} {one.stage}".strip(), brief=brief)
    ]
    labels = [f"{one} {done} of {wanted}" for one, (done, wanted) in overview.labels.items()]
    rounds = _fold(f"  labels: {', '.join(labels)}", "    ") if labels else []
    return [*_fold(f"{overview.experiment}: {facts}", "  "), *table, *rounds, *details]


def format_summary(overview: Overview) -> list[str]:
    """Return an experiment in one line: the number of stages in each state."""
    states = [activity.state for _, activity in overview.list_activities()]
    counts = [f"{states.count(state)} {state}" for state in _STATES if state in states]
    return _fold(f"{overview.experiment}: {', '.join(counts)}", "  ")


def describe(activity: Activity, name: str, *, brief: bool = False) -> list[str]:
    """Return details of a running or failed stage; nothing for others.

    Args:
        activity: The stage.
        name: Its name, at the beginning of lines.
        brief: True to shorten the cause of a failure.
    """
    lines: list[str] = []
    if activity.state == "running":
        training = [describe_training(activity.training)] if activity.training else []
        lines = [*training, *_name_holder(activity)]
    elif activity.failure is not None:
        failure = activity.failure
        when = f" {_format_time(failure.ended)}" if failure.ended else ""
        log = [f"log: {activity.log}"] if activity.log else []
        cause = shorten(failure.cause, _BRIEF, placeholder=" …") if brief else failure.cause
        lines = [f"failed{when} on {failure.host}: {cause}", *log]
    named = [f"{name}: {lines[0]}", *lines[1:]] if lines else []
    return [
        folded
        for number, line in enumerate(named)
        for folded in _fold(line, "      ", "    " if number else "  ")
    ]


def describe_failures(overviews: Iterable[Overview]) -> list[str]:
    """Return the failures in experiments: the cause, and the end of each log."""
    found: dict[str, list[str]] = {}  # experiments may share a dataset
    for overview in overviews:
        for owner, one in overview.list_activities():
            experiment = "" if one.stage == "data" else overview.experiment
            name = " ".join(filter(None, [experiment, owner, one.stage]))
            if one.failure is not None:
                shown = [line for line in read_end(one.log) if one.failure.cause not in line]
                found[name] = [*describe(one, name), *(f"    | {line}" for line in shown)]
    return [line for lines in found.values() for line in lines]


def read_end(log: Path | None) -> list[str]:
    """Return the last lines of a log, without hints on how to get more of it."""
    if log is None:
        return []
    with suppress(OSError), log.open(encoding="utf-8", errors="replace") as file:
        last = deque(file, _LAST_LINES)
        return [line.rstrip() for line in last if "PIPELINE_DEBUG" not in line]
    return []


def describe_training(training: Training) -> str:
    """Return the progress of a training."""
    done, of = (training.epoch, training.step), (training.epochs, training.steps)
    named = (("loss", training.loss, ".2e"), ("val", training.val_loss, ".2e"))
    parts = [count_done(training.word, done, of)]
    parts += [f"{word} {value:{digits}}" for word, value, digits in named if value is not None]
    if training.samples_per_s is not None:
        parts.append(f"{training.samples_per_s:.3g} samples/s")
    if training.elapsed_s is not None:
        parts.append(f"{format_duration(training.elapsed_s)} elapsed")
    if training.left_s is not None:
        until = f" (until {_format_time(training.until)})" if training.until else ""
        parts.append(f"{format_duration(training.left_s)} left{until}")
    if training.quiet_s is not None:
        parts.append(f"no news for {format_duration(training.quiet_s)}")
    return ", ".join(parts)


def _name_holder(activity: Activity) -> list[str]:
    holder = activity.holder
    if holder is None:
        return []
    ranks = f"{holder.ranks} ranks" if holder.ranks > 1 else "1 rank"
    job = f", Slurm job {holder.job}" if holder.job else ""
    since = _format_time(holder.since)
    return [f"{ranks}, the first on {holder.host} (pid {holder.pid}{job}), since {since}"]


def _format_time(text: str) -> str:
    """Return an ISO 8601 time in the local time zone, with the day if it is not today."""
    try:
        time = datetime.fromisoformat(text).astimezone()
    except ValueError:
        return text
    today = datetime.now().astimezone().date()
    return time.strftime("%H:%M:%S" if time.date() == today else "%Y-%m-%d %H:%M")


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _fold(text: str, indent: str, first: str = "") -> list[str]:
    return wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent)


def format_all(overviews: Iterable[Overview], problems: Iterable[str]) -> list[str]:
    """Return all experiments, and the errors of those that could not be read."""
    lines: list[str] = []
    for overview in overviews:
        lines += [*format_overview(overview), ""]
    return [*lines, *(line for problem in problems for line in _fold(problem, "  "))]
