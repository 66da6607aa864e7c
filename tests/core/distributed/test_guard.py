"""When guards give a rank up, on a clock that runs as fast as they look at it."""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from pipeline_core.distributed import guard
from pipeline_core.distributed.watch import read_silence

LONGEST = 120.0  # seconds that ranks may go on after another one has been stopped
STOPS_AT = 33.0


class Clock:
    """Time that passes where somebody waits, and nowhere else."""

    def __init__(self):
        self.begin = self.now = time.monotonic()

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    @property
    def seconds(self):
        return self.now - self.begin


class Healthy:
    """A rank that works, and is told of the loss of another one."""

    is_alive = True

    def __init__(self, clock):
        self._clock, self.told = clock, None

    def beat(self):
        return {"is_stopped": False, "word": "step 7", "is_long": False}

    def end(self, message, grace):
        self.told = (message, self._clock.seconds + grace)


@pytest.fixture
def clock(monkeypatch):
    """The clock of guards, whose signs of life from the other rank come from `clock.hear`."""
    clock = Clock()

    class Selector:
        def register(self, *_):
            pass

        def select(self, seconds):
            clock.sleep(seconds)
            is_stopped = clock.seconds > STOPS_AT
            clock.hear({"is_stopped": is_stopped, "word": "step 7", "is_long": False})
            return []

    names = SimpleNamespace(DefaultSelector=Selector, EVENT_READ=selectors.EVENT_READ)
    monkeypatch.setattr(guard, "selectors", names)
    monkeypatch.setattr(guard, "time", clock)
    return clock


@pytest.fixture
def commands(monkeypatch):
    """What a rank says to its guard, which is nothing."""
    from_rank, to_guard = os.pipe()
    from_guard, to_rank = os.pipe()
    stdin, stdout = (SimpleNamespace(fileno=lambda n=n: n) for n in (from_rank, to_rank))
    monkeypatch.setattr(
        guard, "sys", SimpleNamespace(stdin=stdin, stdout=stdout, stderr=sys.stderr)
    )
    yield guard.Lines(from_rank)
    for number in (from_rank, to_guard, from_guard, to_rank):
        os.close(number)


@contextmanager
def make_guard(lost, config, rank, commands, clock):
    """The guard of the rank that is left, of two."""
    if lost == 1:
        post = guard.Post({**config, "size": 2, "listen": "127.0.0.1"}, rank, commands)
        clock.hear = post._members[1].hear
        with post._server:
            yield post
        return
    with socket.create_server(("127.0.0.1", 0)) as chief:
        facts = {"address": chief.getsockname(), "chief": "rank 0"}
        outpost = guard.Outpost({**config, **facts}, rank, commands)
        clock.hear = outpost._chief.hear
        with outpost._socket:
            yield outpost


@pytest.mark.parametrize("lost", [0, 1])
def test_ranks_of_a_stopped_one_end_within_two_minutes_unless_told_otherwise(
    clock, commands, monkeypatch, lost
):
    monkeypatch.delenv("PIPELINE_SILENCE", raising=False)
    silence, left = read_silence(), 1 - lost
    assert silence <= 110
    rank = Healthy(clock)
    config = {"rank": left, "name": f"rank {left}", "silence": silence, "token": "t"}
    with make_guard(lost, config, rank, commands, clock) as own:
        own.run()
    message, ended = rank.told
    assert f"rank {lost} has not answered for {silence:g} s" in message
    # A rank that does not end when it is told so is killed a little later.
    assert silence < ended - STOPS_AT + guard._LAST_SECONDS < LONGEST
