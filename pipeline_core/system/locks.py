"""One writer at a time: a lock that ends with its process, and a record of its holder.

The lock is the kernel's (`flock`), so a crash does not leave it behind. It holds between hosts
where the file system supports it (NFS version 4, Lustre with `flock`). The record is for people:
which process holds the lock, since when, and how to end it.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pipeline_core.system.processes import find_process, is_alive, list_ancestors, name_host

_LAUNCHERS: Final = (
    *("snakemake", "torchrun", "torch.distributed", "mpiexec", "mpirun", "srun"),
    *("hydra_pmi_proxy", "orted", "prte", "slurmstepd"),  # what these start on each node
)
"""Words in the commands of launchers; a process whose launcher has ended is an orphan."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, or held it when it was killed.

    Attributes:
        host: Its host; with the container, if that numbers processes separately.
        pid: Its number there.
        since: When it took the lock, in ISO 8601.
        job: Slurm job; None outside of Slurm.
        ranks: Processes that work together, of which it is the first.
        started: When the process began, as `Process.started`; None if unknown.
    """

    host: str
    pid: int
    since: str
    job: str | None
    ranks: int
    started: int | None

    @property
    def has_ended(self) -> bool:
        """True if the process has certainly ended; never true for another host."""
        if self.host != name_host():
            return False
        process = find_process(self.pid)
        if process is None:
            return not is_alive(self.pid)
        return self.started not in (None, process.started)


def locate_lock(folder: Path, stage: str) -> Path:
    """Return the lock of a stage whose artifacts lie in a folder."""
    return folder / f".{stage}.lock"


def read_holder(path: Path) -> Holder | None:
    """Return the holder of a lock; None if it is free or its record cannot be read."""
    record = _read(path)
    return None if record is None else record[0]


@contextmanager
def hold(path: Path, work: str, ranks: int = 1) -> Iterator[None]:
    """Hold a lock while the block runs.

    Args:
        path: The lock, which is removed at the end.
        work: The work done under it, for the message to other processes.
        ranks: Number of processes that work together, for the record.

    Raises:
        ValueError: Another process holds it; the message has the process and the command to end it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open_locked(path, work, ranks)
    try:
        yield
    finally:
        with suppress(OSError):  # a file left behind does not lock
            path.unlink(missing_ok=True)  # while the lock is held, so nobody else has it
        os.close(descriptor)


def _open_locked(path: Path, work: str, ranks: int) -> int:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its holder may have removed the file between the two calls.
            if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                with suppress(OSError):  # a full disk: the lock holds without the record
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, json.dumps(_describe_self(ranks)).encode())
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


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        cure = "choose another --results"
        if isinstance(error, PermissionError):
            cure = f"it is another user's: request write permission, or {cure}"
        raise ValueError(f"{path}: cannot be written ({error.strerror}); {cure}") from error


def _describe_self(ranks: int) -> dict[str, Any]:
    own = find_process(os.getpid())
    return {
        "host": name_host(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": os.environ.get("SLURM_JOB_ID"),
        "ranks": ranks,
        "started": own and own.started,
        "ancestors": [[p.pid, p.started, p.command] for p in list_ancestors(os.getpid())],
    }


def _read(path: Path) -> tuple[Holder, list[tuple[int, int, str]]] | None:
    """Return the holder of a lock, and number, start and command of each of its ancestors."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        holder = Holder(
            host=str(record["host"]),
            pid=int(record["pid"]),
            since=str(record["since"]),
            job=record["job"],
            ranks=record["ranks"],
            started=record["started"],
        )
        return holder, [(int(p), int(s), str(command)) for p, s, command in record["ancestors"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _name_holder(path: Path) -> str:
    """Return a description of the holder of a lock, with the command that ends it."""
    record = _read(path)
    if record is None:
        return f"a process that has just begun; `fuser {path}` names it; wait, or call again"
    holder, ancestors = record
    host, pid, job = holder.host, holder.pid, holder.job
    local = host == name_host()
    end = f"scancel {job}" if job else f"kill {pid}" if local else f"ssh {host} kill {pid}"
    who = f"process {pid} on {host} since {holder.since}" + (f", Slurm job {job}" if job else "")
    ended = next((c for p, s, c in ancestors if local and _is_ended_launcher(p, s, c)), None)
    if ended is None:
        return f"{who}; wait for its end, or end it with `{end}`"
    command = " ".join(ended.split())[:80]
    return f"{who}, an orphan: what started it has ended ({command}); end it with `{end}`"


def _is_ended_launcher(pid: int, started: int, command: str) -> bool:
    process = find_process(pid)
    runs = process is not None and process.started == started
    return not runs and any(word in command for word in _LAUNCHERS)
