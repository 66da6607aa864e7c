"""One writer at a time: a lock that ends with its process, beside a record of who holds it.

The lock is the kernel's (`flock`), so nothing that crashes leaves it behind. Between hosts it holds
where the file system carries locks (NFS of version 4, Lustre with `flock`). The record is there to
be read by people: who, since when, and how to end it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pipeline_core.processes import find_process, list_ancestors, name_host

_LAUNCHERS: Final = ("snakemake", "torchrun", "torch.distributed", "mpiexec", "mpirun", "srun")
"""Words in the commands of programs whose end should be that of what they have started."""


@contextmanager
def hold(path: Path, work: str) -> Iterator[None]:
    """Hold a lock while the block runs.

    Args:
        path: The lock, which is removed at the end.
        work: What is done under it, for the message of those that are refused.

    Raises:
        ValueError: Another process holds it; the message names it and the command that ends it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open_locked(path, work)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: nobody else can have it
        os.close(descriptor)


def _open_locked(path: Path, work: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its holder may have removed the file between the two calls.
            if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, json.dumps(_describe_self()).encode())
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise ValueError(
                f"{path.parent}: {work} is under way by {_name_holder(path)}"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _describe_self() -> dict[str, Any]:
    ancestors = [[p.pid, p.started, p.command] for p in list_ancestors(os.getpid())]
    job = os.environ.get("SLURM_JOB_ID")
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "host": name_host(), "pid": os.getpid(), "since": since, "job": job, "ancestors": ancestors
    }  # fmt: skip


def _name_holder(path: Path) -> str:
    """Return who holds a lock, and the command that ends it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        host, pid, since, job = (record[key] for key in ("host", "pid", "since", "job"))
        ancestors = [(int(p), int(s), str(command)) for p, s, command in record["ancestors"]]
    except (OSError, ValueError, KeyError, TypeError):
        return f"a process that has just begun; `fuser {path}` names it; wait, or call again"
    local = host == name_host()
    end = f"scancel {job}" if job else f"kill {pid}" if local else f"ssh {host} kill {pid}"
    who = f"process {pid} on {host} since {since}" + (f", Slurm job {job}" if job else "")
    ended = next((c for p, s, c in ancestors if local and _is_ended_launcher(p, s, c)), None)
    if ended is None:
        return f"{who}; wait for its end, or end it with `{end}`"
    command = " ".join(ended.split())[:80]
    return f"{who}, an orphan: what started it has ended ({command}); end it with `{end}`"


def _is_ended_launcher(pid: int, started: int, command: str) -> bool:
    process = find_process(pid)
    runs = process is not None and process.started == started
    return not runs and any(word in command for word in _LAUNCHERS)
