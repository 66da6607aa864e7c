"""Small status files beside the artifacts, which report stages to those who watch.

| file in the folder of a run | content                                                   |
|-----------------------------|-----------------------------------------------------------|
| `.STAGE.lock`               | holder of the stage: host, process, Slurm job, ranks      |
| `.STAGE.failed`             | cause of the last failure; removed by the next call       |
| `.train.progress`           | position of the training, at most some seconds old        |
| `history.jsonl`             | one record per epoch                                      |
| `records.jsonl`             | one record per call of a stage that succeeded             |

The process that runs a stage writes them: the lock itself, and observers the others.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pipeline_core.project.run import Run
from pipeline_core.status.pace import Position
from pipeline_core.system.processes import name_host

_TAIL: Final = 1 << 16
"""Bytes at the end of a file that are read for its last line."""
_LONGEST: Final = 2000
"""Characters of a cause that are kept."""


@dataclass(frozen=True)
class Failure:
    """Failure of a stage.

    Attributes:
        cause: Its error message.
        ended: Time of the failure, in ISO 8601.
        host: Host on which it failed.
    """

    cause: str
    ended: str
    host: str


def locate_position(run: Run) -> Path:
    """Return the file with the position of a run's training."""
    return run.folder / ".train.progress"


def write_position(run: Run, position: Position) -> None:
    """Write the position of a training atomically, without flushing: the next one comes soon.

    Raises:
        OSError: The file cannot be written.
    """
    from pipeline_core.artifacts.store import name_part  # not needed for reading

    path = locate_position(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = name_part(path)
    temporary.write_text(json.dumps(asdict(position)), encoding="utf-8")
    os.replace(temporary, path)  # noqa: PTH105 - the one call that is atomic by contract


def read_position(run: Run) -> Position | None:
    """Return the last position of a run's training; None if none was written."""
    try:
        return Position.of(json.loads(locate_position(run).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def locate_failure(folder: Path, stage: str) -> Path:
    """Return the failure file of a stage whose artifacts lie in a folder."""
    return folder / f".{stage}.failed"


def write_failure(path: Path, error: BaseException) -> None:
    """Record the cause of a failure; where several ranks fail, only the first one is recorded.

    Raises:
        OSError: The file cannot be written, or exists.
    """
    text = " ".join(str(error).split())
    is_plain = isinstance(error, ValueError | OSError) and text
    cause = text if is_plain else ": ".join(filter(None, [type(error).__name__, text]))
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    failure = Failure(cause[:_LONGEST], ended, name_host())
    with path.open("x", encoding="utf-8") as file:
        json.dump(asdict(failure), file)


def read_failure(path: Path) -> Failure | None:
    """Return the failure of a stage; None if its last call did not fail, or it is unreadable."""
    try:
        return Failure(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def read_tail(path: Path) -> list[dict[str, Any]]:
    """Return the last lines of a file of JSON lines, without incomplete ones."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict)]
