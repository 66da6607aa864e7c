"""Running processes of this host, also as seen through a folder that several hosts share."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_ENDED: Final = ("Z", "X")
"""States of a process that has ended and is still in the table."""
_FIRST_NAMESPACE: Final = 0xEFFFFFFC
"""Inode of the namespace of process numbers that a Linux kernel starts with."""


@dataclass(frozen=True)
class Process:
    """A running process.

    Attributes:
        pid: Its number.
        parent: Number of its parent.
        started: When it began, in clock ticks of the kernel, since numbers are reused.
        command: Its command line.
    """

    pid: int
    parent: int
    started: int
    command: str


def name_host() -> str:
    """Return the host; with the container, if that numbers processes separately."""
    host = socket.gethostname().replace("/", "_")
    try:
        namespace = (_PROC / "self/ns/pid").stat().st_ino
    except OSError:  # not Linux
        return host
    return host if namespace == _FIRST_NAMESPACE else f"{host}-{namespace}"


def is_alive(pid: int) -> bool:
    """Test whether a process of this host runs.

    A zombie, whose parent has not waited for it, does not run: they stay in containers whose first
    process waits for none.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    status = _read_status(pid)
    return status is None or status[1][0] not in _ENDED


def find_process(pid: int) -> Process | None:
    """Return a process of this host; None if there is none or it cannot be read."""
    status = _read_status(pid)
    try:
        command = (_PROC / f"{pid}/cmdline").read_bytes()
    except OSError:
        return None
    if status is None or status[1][0] in _ENDED:
        return None
    name, fields = status
    words = command.decode(errors="replace").replace("\0", " ").strip()
    return Process(pid, int(fields[1]), int(fields[19]), words or name)


def _read_status(pid: int) -> tuple[str, list[str]] | None:
    """Return the name of a process, and its state, parent and further fields; None if unknown."""
    try:
        text = (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or this is not Linux
        return None
    # The name, in parentheses, may hold spaces; state and parent follow it, the start is 20th.
    name, _, rest = text.partition(" (")[2].rpartition(") ")
    return name, rest.split()


def list_ancestors(pid: int) -> list[Process]:
    """Return parent, grandparent and so on of a process of this host, without the first one."""
    ancestors: list[Process] = []
    process = find_process(pid)
    while process is not None and process.parent > 1:
        process = find_process(process.parent)
        ancestors += [] if process is None else [process]
    return ancestors
