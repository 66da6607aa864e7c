"""Small files beside the artifacts that tell what a stage does, for those who watch.

| file in the folder of a run | what it tells                                             |
|-----------------------------|-----------------------------------------------------------|
| `.STAGE.lock`               | who runs the stage: host, process, Slurm job, ranks       |
| `.STAGE.failed`             | why its last call failed; gone when the next one begins   |
| `.train.progress`           | where the training is, from at most some seconds ago      |
| `history.jsonl`             | its epochs                                                |
| `records.jsonl`             | the calls of stages that succeeded                        |

Whoever runs a stage writes them: the lock who it is, observers the others.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pipeline_core.pace import Position
from pipeline_core.processes import name_host
from pipeline_core.run import Run

_TAIL: Final = 1 << 16
"""Bytes at the end of a file that are read for its last line."""
_LONGEST: Final = 2000
"""Characters of a cause that are kept."""


@dataclass(frozen=True)
class Failure:
    """Why a stage failed.

    Attributes:
        cause: What it said.
        ended: When, in ISO 8601.
        host: Where.
    """

    cause: str
    ended: str
    host: str


def locate_position(run: Run) -> Path:
    """Return the file that says where the training of a run is."""
    return run.folder / ".train.progress"


def write_position(run: Run, position: Position) -> None:
    """Say where a training is: whole, but not flushed to disk, since the next one comes soon.

    Raises:
        OSError: The file cannot be written.
    """
    from pipeline_core.store import name_part  # not needed by those who only read

    path = locate_position(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = name_part(path)
    temporary.write_text(json.dumps(asdict(position)), encoding="utf-8")
    os.replace(temporary, path)  # noqa: PTH105 - the one call that is atomic by contract


def read_position(run: Run) -> Position | None:
    """Return where the training of a run is, or was when it ended; None if nobody said so."""
    try:
        return Position.of(json.loads(locate_position(run).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def locate_failure(folder: Path, stage: str) -> Path:
    """Return the note of a failed stage whose artifacts lie in a folder."""
    return folder / f".{stage}.failed"


def write_failure(path: Path, error: BaseException) -> None:
    """Note why a stage failed; where several ranks fail, the first one says the cause.

    Raises:
        OSError: The file cannot be written, or is there.
    """
    said = " ".join(str(error).split())
    is_plain = isinstance(error, ValueError | OSError) and said
    cause = said if is_plain else ": ".join(filter(None, [type(error).__name__, said]))
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    failure = Failure(cause[:_LONGEST], ended, name_host())
    with path.open("x", encoding="utf-8") as file:
        json.dump(asdict(failure), file)


def read_failure(path: Path) -> Failure | None:
    """Return why a stage failed; None if its last call did not, or that cannot be read."""
    try:
        return Failure(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def read_tail(path: Path) -> list[dict[str, Any]]:
    """Return the last lines of a file of JSON lines, without those that are cut."""
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
