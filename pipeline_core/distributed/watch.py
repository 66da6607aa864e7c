"""Watch over the ranks: detects a dead or stuck rank, and reports the status of this one.

A process that waits for a dead or stopped one inside torch cannot check it. Beside each rank runs a
guard (`guard.py`), which reports every few seconds that the rank is alive, whatever its interpreter
is busy with, and receives the same from others. If a rank is silent for too long, dies, or fails,
its peers end with its name, host, pid and last status. None ends because its work takes long.

| variable           | meaning                                                               |
|--------------------|-----------------------------------------------------------------------|
| `PIPELINE_SILENCE` | seconds after which a silent rank counts as lost, 100 if not set      |
"""

import json
import logging
import mmap
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from torch import distributed as dist

from pipeline_core.distributed.world import World

EXIT_STATUS: Final = 75
"""Exit status of a rank that ends since another one is lost: "try again", as in sysexits.h."""

_GUARD: Final = Path(__file__).with_name("guard.py")
_BOARD_SIZE: Final = 1024  # bytes
_LONGEST_WORD: Final = 120  # characters, of which JSON makes six bytes each at most
_LONGEST_REASON: Final = 300
_PATIENCE: Final = 2.0  # s, for the report on a rank with a broken connection
_ADVICE: Final = "start the stage again: a training goes on from its last saved state"

logger = logging.getLogger(__name__)


class Watch:
    """The guard of one rank, and its messages.

    It is started here, so that it is running when the ranks have found each other, and begins to
    watch with `connect`.

    Raises:
        ValueError: `PIPELINE_SILENCE` is not a positive number.
    """

    def __init__(self) -> None:
        self._silence = read_silence()
        board = _open_board()
        with os.fdopen(board, "r+b") as file:
            file.truncate(_BOARD_SIZE)
            self._board = mmap.mmap(board, _BOARD_SIZE)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(board)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[board],
            )
        self._status = ("", False)
        self._loss: str | None = None
        self._is_lost, self._has_left = threading.Event(), threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self.report("")

    def connect(self, world: World, address: str, broadcast: Callable[[Any], Any]) -> None:
        """Begin to watch; all ranks call it.

        Args:
            world: The place of this process.
            address: Address of rank 0's interface to the others.
            broadcast: Returns the value of rank 0.
        """
        name = f"rank {world.rank} on {socket.gethostname()} (pid {os.getpid()})"
        own = {"rank": world.rank, "name": name, "silence": self._silence}
        chief: tuple[str, int, str, str] | None = None
        if world.rank == 0:
            token = secrets.token_hex()
            self._send({**own, "size": world.size, "token": token, "listen": address})
            chief = (address, self._receive()["port"], token, name)
        host, port, token, chief_name = broadcast(chief)
        if world.rank:
            self._send({**own, "address": [host, port], "token": token, "chief": chief_name})
        elif loss := self._receive().get("lost"):  # otherwise all guards are connected
            raise explain(loss)
        self._listener.start()

    def report(self, word: str) -> None:
        """Report the status of this rank, for the message if it is lost. Costs microseconds."""
        self._set_status(word, is_long=False)

    @contextmanager
    def announce(self, word: str) -> Iterator[None]:
        """Report the status within a context, in which others may have to wait long."""
        before = self._status
        self._set_status(word, is_long=True)
        yield
        self._set_status(before[0], is_long=before[1])

    def leave(self, error: BaseException | None) -> str | None:
        """End the watch.

        Args:
            error: Failure of this rank; None if its work is done.

        Returns:
            Description of another lost rank, if that is the cause of the error.
        """
        is_follower = error is not None and is_caused_by_others(error)
        if is_follower and self._listener.is_alive():
            self._is_lost.wait(_PATIENCE)
        self._has_left.set()
        if self._loss is None and self._listener.is_alive():
            reason = error and " ".join(f"{type(error).__name__}: {error}".split())
            with suppress(OSError):
                self._send({"leave": reason and reason[:_LONGEST_REASON]})
        self._close()
        return self._loss if is_follower else None

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(0.0 if self._loss else _PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._listener.is_alive():
            self._listener.join()
        self._process.stdout.close()
        self._board.close()

    def _set_status(self, word: str, *, is_long: bool) -> None:
        self._status = (word, is_long)
        text = json.dumps({"word": word[:_LONGEST_WORD], "is_long": is_long})
        self._board[:] = text.encode().ljust(_BOARD_SIZE, b"\0")

    def _send(self, content: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(content).encode() + b"\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        content: dict[str, Any] = json.loads(line) if line else {}
        return content

    def _listen(self) -> None:
        """Wait for a report of a lost rank, and end this process if it cannot end by itself."""
        news = self._receive()
        if self._has_left.is_set():
            return
        self._loss = news.get("lost", "the guard of this rank was killed")
        self._is_lost.set()
        if not self._has_left.wait(news.get("grace", 0.0)):
            sys.stdout.flush()
            sys.stderr.write(f"error: {self._loss}; {_ADVICE}\n")
            sys.stderr.flush()
            os._exit(EXIT_STATUS)  # the main thread is somewhere in torch and would stay there


def read_silence() -> float:
    """Return the seconds after which a silent rank counts as lost.

    Raises:
        ValueError: `PIPELINE_SILENCE` is not a positive number.
    """
    text = os.environ.get("PIPELINE_SILENCE", "100")
    with suppress(ValueError):
        if 0 < (silence := float(text)) < float("inf"):
            return silence
    raise ValueError(f"PIPELINE_SILENCE: {text!r} is not a positive number of seconds")


def is_caused_by_others(error: BaseException) -> bool:
    """Return True if an error of torch means that the connection to another rank has broken."""
    text = str(error)
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and ("gloo" in text or "NCCL" in text)
    )


def explain(loss: str) -> ValueError:
    """Return the error of a rank that cannot continue without another one."""
    return ValueError(f"{loss}; {_ADVICE}")


def _open_board() -> int:
    """Return a file without a name, in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pipeline_core")
    number, path = tempfile.mkstemp()
    Path(path).unlink()
    return number
