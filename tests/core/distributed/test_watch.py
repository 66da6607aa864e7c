"""Ranks that die, are stopped, or fail: the others end and name them.

The ranks are forks of the tests' process and find each other as those of torchrun do. Nothing ends
them from outside, as launchers would.
"""

import ctypes
import json
import os
import re
import signal
import socket
import sys
import time
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.watch import EXIT_STATUS, read_silence
from processes import find_free_port
from tiers import exhaustive

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

SILENCE = 1.5
TIME_LIMIT = 300  # seconds, for what ends within three


class Rank:
    """What a process does that has just been forked."""

    def __init__(self, work, folder, n_ranks):
        self._work, self._folder, self._size, self._port = work, folder, n_ranks, find_free_port()

    def __call__(self, number):
        signal.alarm(TIME_LIMIT)
        output = os.open(self._folder / f"{number}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # pytest catches what is written
        os.environ |= {"RANK": str(number), "WORLD_SIZE": str(self._size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self._port}
        os.environ |= {"PIPELINE_SILENCE": str(SILENCE)}
        try:
            with connect_ranks("cpu", self._folder) as ranks:
                self._work(ranks)
        except ValueError as error:
            sys.stderr.write(f"error: {error}\n")
            sys.stderr.flush()
            os._exit(1)


@contextmanager
def start_ranks(work, folder, n_ranks=3):
    context = get_context("fork")
    rank = Rank(work, folder, n_ranks)
    processes = [context.Process(target=rank, args=(i,)) for i in range(n_ranks)]
    for process in processes:
        process.start()
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.join()


def wait_for_codes(processes):
    for process in processes:
        process.join(TIME_LIMIT)
    return [process.exitcode for process in processes]


def read_logs(folder):
    """Read the log of each rank without the warnings of torch, which a busy machine draws."""
    texts = [(folder / f"{i}.log").read_text() for i in range(len(list(folder.glob("*.log"))))]
    return [re.sub(r"^\[W.*(\n|$)", "", text, flags=re.MULTILINE) for text in texts]


def take_steps(ranks, end=10**9, at=None, then=None):
    """Steps as a training takes them; at one of them a rank meets its fate."""
    for step in range(1, end + 1):
        ranks.report(f"step {step}")
        if at == (ranks.rank, step):
            then()
        ranks.all_reduce_sum(torch.ones(1))
        time.sleep(0.01)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise OSError("the disk of this node is gone")


@pytest.mark.parametrize("lost", [0, 1])
def test_ranks_of_a_stopped_one_end_and_name_it(tmp_path, lost):
    work = lambda ranks: take_steps(ranks, at=(lost, 7), then=stop)  # noqa: E731
    begin = time.monotonic()
    with start_ranks(work, tmp_path) as processes:
        codes = wait_for_codes(processes)
    assert time.monotonic() - begin < 20 * SILENCE
    assert codes[lost] == -signal.SIGKILL, "it would write when it continues"
    assert {code for i, code in enumerate(codes) if i != lost} == {EXIT_STATUS}
    pid, host = processes[lost].pid, socket.gethostname()
    for log in read_logs(tmp_path):
        assert f"error: rank {lost} on {host} (pid {pid}) has not answered for {SILENCE} s" in log
        assert "its last status: step 7" in log
        assert "Traceback" not in log


@pytest.mark.parametrize(
    ("lost", "fate"),
    [(0, die), (2, fail), *(pytest.param(*one, marks=exhaustive) for one in ((2, die), (0, fail)))],
)
def test_ranks_of_a_dead_or_failed_one_end_and_name_it(tmp_path, lost, fate):
    work = lambda ranks: take_steps(ranks, at=(lost, 5), then=fate)  # noqa: E731
    with start_ranks(work, tmp_path) as processes:
        codes = wait_for_codes(processes)
    assert codes[lost] == (-signal.SIGKILL if fate is die else 1)
    assert {code for i, code in enumerate(codes) if i != lost} == {1}
    what = "has died" if fate is die else "has failed: OSError: the disk of this node is gone"
    for i, log in enumerate(read_logs(tmp_path)):
        if i != lost:
            assert f"error: rank {lost} on" in log
            assert f"(pid {processes[lost].pid}) {what}; its last status: step 5" in log


def test_a_rank_that_works_alone_for_long_is_waited_for(tmp_path):
    """It holds the interpreter meanwhile: none of its own threads could run."""

    def work(ranks):
        take_steps(ranks, end=3)
        if ranks.rank == 1:
            with ranks.announce("levels of 3000 atoms"):
                hold_interpreter(3 * SILENCE)
        take_steps(ranks, end=3)

    with start_ranks(work, tmp_path) as processes:
        assert wait_for_codes(processes) == [0, 0, 0]
    assert read_logs(tmp_path) == ["", "", ""]


def hold_interpreter(seconds):
    """Sleep in C without giving the interpreter's lock to other threads."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def test_ranks_that_wait_for_each_other_for_long_say_so_and_wait_on(tmp_path):
    def work(ranks):
        take_steps(ranks, end=3)
        if ranks.rank == 1:
            time.sleep(2 * SILENCE)
        take_steps(ranks, end=3)

    with start_ranks(work, tmp_path, n_ranks=2) as processes:
        assert wait_for_codes(processes) == [0, 0]
    said, *others = read_logs(tmp_path)
    assert said.count("all ranks live but without progress") == 1
    assert f"(pid {processes[1].pid}): step 3" in said
    assert others == [""]


def test_a_rank_may_leave_before_the_others(tmp_path):
    def work(ranks):
        take_steps(ranks, end=3)
        time.sleep(2 * SILENCE if ranks.rank else 0)

    with start_ranks(work, tmp_path) as processes:
        assert wait_for_codes(processes) == [0, 0, 0]
    assert read_logs(tmp_path) == ["", "", ""]


def test_a_user_may_stop_all_ranks_and_continue_them(tmp_path):
    """As Ctrl-Z and `fg` do with all processes of a terminal, guards among them."""
    context = get_context("fork")
    work = lambda ranks: take_steps(ranks, end=300)  # noqa: E731
    launcher = context.Process(target=launch_in_session, args=(work, tmp_path))
    launcher.start()
    while "started" not in "".join(path.read_text() for path in tmp_path.glob("codes*")):
        time.sleep(0.05)
    os.killpg(launcher.pid, signal.SIGSTOP)
    time.sleep(2 * SILENCE)
    os.killpg(launcher.pid, signal.SIGCONT)
    launcher.join(TIME_LIMIT)
    assert (tmp_path / "codes").read_text() == "started [0, 0, 0]"


def launch_in_session(work, folder):
    os.setsid()
    with start_ranks(work, folder) as processes:
        time.sleep(1.0)
        (folder / "codes").write_text("started ")
        codes = wait_for_codes(processes)
    (folder / "codes").write_text(f"started {codes}")


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "inf", "nan"])
def test_the_limit_has_to_be_a_number_of_seconds(monkeypatch, text):
    monkeypatch.setenv("PIPELINE_SILENCE", text)
    with pytest.raises(ValueError, match=r"PIPELINE_SILENCE.*not a positive number"):
        read_silence()
    monkeypatch.delenv("PIPELINE_SILENCE")
    assert read_silence() == 100


def test_strangers_are_not_listened_to(tmp_path):
    """Nobody without the token of this group can end it."""

    inherited = list_sockets()

    def work(ranks):
        ports = [int(port, 16) for _, port in list_sockets() - inherited]
        ports = ranks.broadcast(ports)
        for port in ports if ranks.rank else []:
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                line = {"token": "guess", "rank": 1, "name": "x", "died": "has died"}
                stranger.sendall(json.dumps(line).encode() + b"\n{}\nnonsense\n")
        ranks.barrier()
        time.sleep(2 * SILENCE)
        ranks.barrier()

    with start_ranks(work, tmp_path, n_ranks=2) as processes:
        assert wait_for_codes(processes) == [0, 0]


def test_on_one_node_nobody_else_can_connect(tmp_path):
    """Guard, store and gloo listen at the loopback alone. Oracle: the kernel's table of sockets."""

    inherited = list_sockets()  # gloo of an earlier test may listen still

    def work(ranks):
        ranks.barrier()
        if ranks.rank == 0:
            print(sorted({address for address, _ in list_sockets() - inherited}), end="")
        ranks.barrier()

    with start_ranks(work, tmp_path, n_ranks=2) as processes:
        assert wait_for_codes(processes) == [0, 0]
    assert read_logs(tmp_path)[0] == "['0100007F']"


def list_sockets():
    """Return address and port, in hexadecimal, of what this process and its children listen at."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    inodes = set()
    for pid in ["self", *children]:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(str(link.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                found.add(tuple(words[1].split(":")))
    return found
