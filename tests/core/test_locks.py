"""One writer at a time. Oracle: the kernel, which ends processes and their locks."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import pytest

from pipeline_core import locks

HOLD = """
    import sys, time
    from pathlib import Path
    from pipeline_core.locks import hold
    with hold(Path(sys.argv[1]), "the stage 'train'"):
        print(__import__("os").getpid(), flush=True)
        time.sleep(600)
"""
LAUNCH = """
    import subprocess, sys
    subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""


@contextmanager
def running(code, *arguments):
    words = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_second_writer_is_refused_until_the_first_has_died(tmp_path):
    path = tmp_path / "run/.train.lock"
    with running(HOLD, path) as (process, pid):
        message = rf"run: the stage 'train' is under way by process {pid} on .* `kill {pid}`"
        with pytest.raises(ValueError, match=message), locks.hold(path, "the stage 'train'"):
            pytest.fail("two writers")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.exists()
    with locks.hold(path, "the stage 'train'"):
        assert path.exists()
    assert not path.exists()


def test_an_orphan_is_named_with_the_command_that_ends_it(tmp_path):
    path = tmp_path / ".train.lock"
    with running(LAUNCH, path, textwrap.dedent(HOLD), "snakemake") as (launcher, pid):
        try:
            launcher.kill()
            launcher.wait()
            message = rf"an orphan: what started it has ended \(.*\); end it with `kill {pid}`"
            with pytest.raises(ValueError, match=f"(?s){message}"), locks.hold(path, "training"):
                pytest.fail("two writers")
        finally:
            os.kill(pid, signal.SIGKILL)


def test_the_lock_of_a_failed_block_is_free(tmp_path):
    path = tmp_path / ".graph.lock"
    with pytest.raises(KeyError), locks.hold(path, "graph"):
        raise KeyError
    with locks.hold(path, "graph"):
        pass
    assert not list(tmp_path.iterdir())
