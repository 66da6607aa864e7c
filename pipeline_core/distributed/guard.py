"""Guard of a rank: a small process beside it that reports to other guards that it is alive.

A thread would not do: C code may hold the interpreter for minutes, and a stopped process has no
running thread. The guard detects that its rank has died by becoming an orphan, and that it is
stopped by the state in the kernel. Guards exchange JSON lines. The guard of rank 0 listens,
receives from all ranks, and decides; the others receive from rank 0 alone. When a rank is lost,
each guard informs its own rank, and kills it if it does not end by itself, as a stopped one cannot.

This file is a program and imports nothing but the standard library: it starts within milliseconds.
`watch.py` starts it and communicates with it.
"""

import json
import mmap
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_LONGEST_LINE: Final = 1 << 16
_LAST_SECONDS: Final = 5.0
"""Time that a lost rank has to end before it is killed."""


class Lines:
    """JSON lines from a pipe or a socket.

    Args:
        number: Its file descriptor.

    Attributes:
        is_over: True if the other side has closed it, or sent anything but JSON lines.
    """

    def __init__(self, number: int) -> None:
        self._number, self._rest = number, b""
        self._waiting: deque[bytes] = deque()
        self.is_over = False

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that have arrived since the last call."""
        self._receive()
        while self._waiting:
            try:
                content = json.loads(self._waiting.popleft())
            except ValueError:
                content = None
            if not isinstance(content, dict):
                self.is_over = True
                return
            yield content

    def _receive(self) -> None:
        try:
            received = os.read(self._number, _LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        *lines, self._rest = (self._rest + received).split(b"\n")
        self._waiting.extend(lines)
        self.is_over = not received or len(self._rest) > _LONGEST_LINE


@dataclass
class Member:
    """State of a rank, as received by the guard of rank 0.

    Attributes:
        name: Rank, host and pid, for messages.
        word: Its last reported status.
        is_long: True if that is work that may take long.
        is_stopped: True if it is stopped by a signal.
        heard: Time of the last sign of life.
        spoken: Time of the last change of status.
    """

    name: str
    word: str = ""
    is_long: bool = False
    is_stopped: bool = False
    heard: float = field(default_factory=time.monotonic)
    spoken: float = field(default_factory=time.monotonic)

    def hear(self, beat: dict[str, Any]) -> None:
        """Record a sign of life."""
        now = time.monotonic()
        self.is_stopped = beat["is_stopped"]
        if not self.is_stopped:
            self.heard = now
        if (beat["word"], beat["is_long"]) != (self.word, self.is_long):
            self.word, self.is_long, self.spoken = beat["word"], beat["is_long"], now

    def extend_deadline(self, seconds: float) -> None:
        """Extend the deadline by a time in which nobody listened."""
        self.heard = min(time.monotonic(), self.heard + seconds)

    def describe(self, fate: str) -> str:
        """Return a description of a lost rank, with its last status."""
        word = f"its last status: {self.word}" if self.word else "it had reported nothing yet"
        return f"{self.name} {fate}; {word}"


class Rank:
    """The guarded process: the parent of this one.

    Args:
        pid: Its number.
        board: File with its status, which it writes.
    """

    def __init__(self, pid: int, board: int) -> None:
        self._pid, self._board = pid, mmap.mmap(board, 0, access=mmap.ACCESS_READ)
        self._word: dict[str, Any] = {"word": "", "is_long": False}

    @property
    def is_alive(self) -> bool:
        """True if the process exists, stopped or not."""
        return os.getppid() == self._pid

    @property
    def is_stopped(self) -> bool:
        """True if a signal has stopped it; False where the kernel does not show it."""
        try:
            status = Path(f"/proc/{self._pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] in ("T", "t")

    def beat(self) -> dict[str, Any]:
        """Return a sign of life."""
        with suppress(ValueError):  # it is being written: the next beat will be up to date
            self._word = json.loads(self._board[:].rstrip(b"\0"))
        return {"is_stopped": self.is_stopped, **self._word}

    def end(self, message: str, grace: float) -> None:
        """Send it the reason to end, and kill it if it does not."""
        send(sys.stdout.fileno(), {"lost": message, "grace": grace})
        deadline = time.monotonic() + grace + _LAST_SECONDS
        while self.is_alive and not self.is_stopped and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.is_alive:
            sys.stderr.write(f"error: {message}. This process (pid {self._pid}) was killed\n")
            os.kill(self._pid, signal.SIGKILL)


class Guard:
    """Common part of guards: one rank, and a loop that sends signs of life.

    Args:
        config: First message of `watch.py`.
        rank: The guarded process.
    """

    def __init__(self, config: dict[str, Any], rank: Rank, commands: Lines) -> None:
        self._rank, self._commands = rank, commands
        self._silence = float(config["silence"])
        self._every = min(5.0, self._silence / 5)
        self._selector = selectors.DefaultSelector()
        os.set_blocking(sys.stdin.fileno(), False)
        self._selector.register(sys.stdin, selectors.EVENT_READ, self._read_commands)
        self._is_over = False

    def run(self) -> None:
        """Guard until the rank leaves or ends, or another one is lost."""
        due = time.monotonic()
        self._read_commands()  # commands that came with the configuration
        while not self._is_over:
            for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
                key.data()
            late = time.monotonic() - due
            if late < 0 or self._is_over:
                continue
            if late > self._every:
                self._extend_deadlines(late)  # this process was asleep
            due = time.monotonic() + self._every
            if self._rank.is_alive:
                self._beat()
            else:
                self._report_exit()

    def _read_commands(self) -> None:
        for command in self._commands.read():
            self._leave(command["leave"])
            self._is_over = True
        if self._commands.is_over and not self._is_over:
            self._report_exit()

    def _report_exit(self) -> None:
        self._report("has died")
        self._is_over = True

    def _beat(self) -> None:
        """Send a sign of life, and check the others."""
        raise NotImplementedError

    def _extend_deadlines(self, seconds: float) -> None:
        """Extend the deadlines of others by a time in which this process did not listen."""
        raise NotImplementedError

    def _leave(self, reason: str | None) -> None:
        """Report that the rank leaves, with the reason if it has failed."""
        raise NotImplementedError

    def _report(self, fate: str) -> None:
        """Report the fate of the rank."""
        raise NotImplementedError

    def _lose(self, message: str, grace: float) -> None:
        self._rank.end(message, grace)
        self._is_over = True


class Monitor(Guard):
    """The guard of a rank other than 0.

    Args:
        config: With `address` of the guard of rank 0, and `chief`, the name of rank 0.
        rank: The guarded process.
        commands: Its commands.
    """

    def __init__(self, config: dict[str, Any], rank: Rank, commands: Lines) -> None:
        super().__init__(config, rank, commands)
        self._rank_zero = Member(config["chief"])
        self._socket = socket.create_connection(tuple(config["address"]), timeout=self._silence)
        self._send({key: config[key] for key in ("token", "rank", "name")})
        self._is_alone = False
        self._news = Lines(self._socket.fileno())
        self._selector.register(self._socket, selectors.EVENT_READ, self._listen)

    def _send(self, content: dict[str, Any]) -> None:
        with suppress(OSError):  # the next message has the reason
            self._socket.sendall(json.dumps(content).encode() + b"\n")

    def _listen(self) -> None:
        for news in self._news.read():
            if "lost" in news:
                self._lose(news["lost"], news["grace"])
                return
            if "left" in news:
                self._stand_alone()
                return
            self._rank_zero.hear(news)
            self._rank_zero.heard = time.monotonic()  # its own guard sees whether it stops
        if self._news.is_over:
            self._lose(self._rank_zero.describe("has died, and its guard with it"), self._silence)

    def _stand_alone(self) -> None:
        """Rank 0 has finished: nobody has to wait for it any more."""
        self._selector.unregister(self._socket)
        self._socket.close()
        self._is_alone = True

    def _beat(self) -> None:
        self._send(self._rank.beat())
        if not self._is_alone and time.monotonic() - self._rank_zero.heard > self._silence:
            self._lose(self._rank_zero.describe(f"has not answered for {self._silence:g} s"), 0.0)

    def _extend_deadlines(self, seconds: float) -> None:
        self._rank_zero.extend_deadline(seconds)

    def _leave(self, reason: str | None) -> None:
        self._send({**self._rank.beat(), "left": reason})

    def _report(self, fate: str) -> None:
        self._send({**self._rank.beat(), "died": fate})


class Connection:
    """A connection to the guard of rank 0.

    Attributes:
        rank: The rank of the guard that has connected; None until it is known.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket, self.lines = connection, Lines(connection.fileno())
        self.rank: int | None = None


class Coordinator(Guard):
    """The guard of rank 0, which receives from all ranks.

    Args:
        config: With `listen`, the address of the interface in use.
        rank: The guarded process.
        commands: Its commands.
    """

    def __init__(self, config: dict[str, Any], rank: Rank, commands: Lines) -> None:
        super().__init__(config, rank, commands)
        self._token = config["token"]
        self._members = {rank: Member(f"rank {rank}") for rank in range(config["size"])}
        self._own = self._members[0]
        self._own.name = config["name"]
        self._sockets: dict[int, socket.socket] = {}
        self._is_stalled = False
        family = socket.AF_INET6 if ":" in config["listen"] else socket.AF_INET
        self._server = socket.create_server((config["listen"], 0), family=family, backlog=4096)
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        send(sys.stdout.fileno(), {"port": self._server.getsockname()[1]})

    def _accept(self) -> None:
        connection = Connection(self._server.accept()[0])
        self._selector.register(
            connection.socket, selectors.EVENT_READ, lambda: self._listen(connection)
        )

    def _listen(self, connection: Connection) -> None:
        for line in connection.lines.read():
            if connection.rank is None:
                if not self._authenticate(connection, line):
                    self._close(connection)
                    return
                continue
            member = self._members[connection.rank]
            member.hear(line)
            if "died" in line:
                self._lose(member.describe(line["died"]), self._silence)
                return
            if "left" in line:
                self._release(connection, line["left"])
                return
        if connection.lines.is_over:
            self._close(connection)
            if connection.rank is not None:
                member = self._members[connection.rank]
                self._lose(member.describe("has died, and its guard with it"), self._silence)

    def _authenticate(self, connection: Connection, line: dict[str, Any]) -> bool:
        """Return True if a connection is from the guard of a rank; others are closed."""
        rank = line.get("rank")
        if not secrets.compare_digest(str(line.get("token")), self._token):
            return False
        if rank not in self._members or rank in self._sockets:
            return False
        self._members[rank].name, connection.rank = line["name"], rank
        self._sockets[rank] = connection.socket
        if len(self._sockets) == len(self._members) - 1:
            send(sys.stdout.fileno(), {"ready": True})  # from now on all receive its messages
        return True

    def _close(self, connection: Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection.rank is not None:
            del self._sockets[connection.rank]

    def _release(self, connection: Connection, reason: str | None) -> None:
        assert connection.rank is not None
        self._close(connection)
        member = self._members.pop(connection.rank)
        if reason is not None:
            self._lose(member.describe(f"has failed: {reason}"), self._silence)

    def _beat(self) -> None:
        beat = self._rank.beat()
        self._own.hear(beat)
        self._broadcast(beat)
        now = time.monotonic()
        for member in self._members.values():
            if now - member.heard > self._silence:
                cause = " (a signal has stopped it)" if member.is_stopped else ""
                fate = f"has not answered for {self._silence:g} s{cause}"
                self._lose(member.describe(fate), 0.0)
                return
        self._look_for_progress(now)

    def _look_for_progress(self, now: float) -> None:
        """Warn once if all ranks are alive but none makes progress, which may be legitimate."""
        members = self._members.values()
        quiet = now - max(member.spoken for member in members)
        waits = quiet > 1.2 * self._silence and any(member.word for member in members)
        if waits and not self._is_stalled and not any(member.is_long for member in members):
            words = "; ".join(f"{m.name}: {m.word or 'nothing yet'}" for m in members)
            sys.stderr.write(f"all ranks live but without progress for {quiet:.0f} s: {words}\n")
        self._is_stalled = waits

    def _extend_deadlines(self, seconds: float) -> None:
        for member in self._members.values():
            member.extend_deadline(seconds)

    def _broadcast(self, content: dict[str, Any]) -> None:
        for connection in self._sockets.values():
            send(connection.fileno(), content)

    def _lose(self, message: str, grace: float) -> None:
        self._broadcast({"lost": message, "grace": grace})
        super()._lose(message, grace)

    def _leave(self, reason: str | None) -> None:
        if reason is None:
            self._broadcast({"left": True})
        else:
            self._report(f"has failed: {reason}")

    def _report(self, fate: str) -> None:
        self._own.hear(self._rank.beat())
        self._broadcast({"lost": self._own.describe(fate), "grace": self._silence})


def send(number: int, content: dict[str, Any]) -> None:
    """Write a line; if the other side is not ready for it, it is lost, as are signs of life."""
    with suppress(OSError):
        os.write(number, json.dumps(content).encode() + b"\n")


def main() -> None:
    """Read the configuration from standard input, and guard the parent."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its rank does
    pid = os.getppid()
    commands = Lines(sys.stdin.fileno())
    config = next(commands.read(), None)
    if config is None:
        return  # the rank has not found the others, or is alone
    rank = Rank(pid, int(sys.argv[1]))
    kind = Coordinator if "listen" in config else Monitor
    kind(config, rank, commands).run()


if __name__ == "__main__":
    main()
