"""Running processes of this host, also as seen through a folder that several hosts share."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_ENDED: Final = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
"""States of a process that has ended and is still in the table."""
_FIRST_NAMESPACE: Final = 0xEFFFFFFC
"""Inode of the namespace of process numbers that a Linux kernel starts with."""


@dataclass(frozen=True)
class Process:
    """A running process.

    Attributes:
        pid: Its number.
        parent: Number of its parent.
        started: When it began, in 0.01 s since the start of the machine, since numbers are reused.
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
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:  # not Linux
        return host
    return host if namespace == _FIRST_NAMESPACE else f"{host}-{namespace}"


def is_alive(pid: int) -> bool:
    """Test whether a process of this host runs.

    A zombie, whose parent has not waited for it, does not run: they stay in containers whose first
    process waits for none.
    """
    try:
        os.kill(pid, 0)  # finds processes of other users even where /proc hides them
        return psutil.Process(pid).status() not in _ENDED
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
    except (OSError, psutil.AccessDenied):  # of another user
        return True


def find_process(pid: int) -> Process | None:
    """Return a process of this host; None if there is none or it cannot be read."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() in _ENDED:
                return None
            # Relative to the start of the machine: its clock may be set meanwhile.
            started = round(100 * (process.create_time() - psutil.boot_time()))
            command = " ".join(process.cmdline()).strip() or process.name()
            printable = command.encode(errors="replace").decode()
            return Process(pid, process.ppid(), started, printable)
    except psutil.Error:
        return None


def list_ancestors(pid: int) -> list[Process]:
    """Return parent, grandparent and so on of a process of this host, without the first one."""
    found = (find_process(one.pid) for one in psutil.Process(pid).parents() if one.pid > 1)
    return [process for process in found if process is not None]
