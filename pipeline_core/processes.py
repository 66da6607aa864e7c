"""Processes as other ones see them, also through a folder that several hosts share."""

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
    """What is known of a running process.

    Attributes:
        pid: Its number.
        parent: That of its parent.
        started: When it began, in clock ticks of the kernel: numbers are used again.
        command: What it was called by.
    """

    pid: int
    parent: int
    started: int
    command: str


def name_host() -> str:
    """Return the host; within a container that numbers processes by itself, which one, too."""
    host = socket.gethostname().replace("/", "_")
    try:
        namespace = (_PROC / "self/ns/pid").stat().st_ino
    except OSError:  # not Linux
        return host
    return host if namespace == _FIRST_NAMESPACE else f"{host}-{namespace}"


def is_alive(pid: int) -> bool:
    """Return whether a process of this host runs.

    One that has ended and for which its parent has not asked yet does not: in a container whose
    first process asks for none, such remain.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of somebody else
        return True
    status = _read_status(pid)
    return status is None or status[1][0] not in _ENDED


def find_process(pid: int) -> Process | None:
    """Return a process of this host; None if there is none, or nobody can tell."""
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
    """Return the name of a process, and its state, its parent and what follows; None if unknown."""
    try:
        text = (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or this is not Linux
        return None
    # The name, in parentheses, may hold spaces; state and parent follow it, the start is 20th.
    name, _, rest = text.partition(" (")[2].rpartition(") ")
    return name, rest.split()


def list_ancestors(pid: int) -> list[Process]:
    """Return the parent of a process of this host, its parent, and so on, without the first."""
    ancestors: list[Process] = []
    process = find_process(pid)
    while process is not None and process.parent > 1:
        process = find_process(process.parent)
        ancestors += [] if process is None else [process]
    return ancestors
