"""One writer at a time. Oracle: the kernel, which ends processes and their locks."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager, suppress

import pytest

from pipeline_core.system import locks
from pipeline_core.system.processes import is_alive, list_ancestors
from processes import make_environment, mpiexec

HOLD = textwrap.dedent("""\
    import sys, time
    from pathlib import Path
    from pipeline_core.system.locks import hold
    with hold(Path(sys.argv[1]), "the stage 'train'"):
        print(__import__("os").getpid(), flush=True)
        time.sleep(600)
""")


@contextmanager
def running(words, executable=None):
    with subprocess.Popen(
        [*map(str, words)],
        executable=executable,
        stdout=subprocess.PIPE,
        text=True,
        env=make_environment(),
    ) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_second_writer_is_refused_until_the_first_has_died(tmp_path):
    path = tmp_path / "run/.train.lock"
    with running([sys.executable, "-c", HOLD, path]) as (process, pid):
        message = rf"run: the stage 'train' is under way by process {pid} on .* `kill {pid}`"
        with pytest.raises(ValueError, match=message), locks.hold(path, "the stage 'train'"):
            pytest.fail("two writers")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.exists()
    with locks.hold(path, "the stage 'train'"):
        assert path.exists()
    assert not path.exists()


def test_a_lock_holds_though_there_is_no_room_for_its_record(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / ".train.lock"
    monkeypatch.setattr(locks.os, "write", fail)
    with locks.hold(path, "training"):
        message = "training is under way by a process that has just begun; `fuser"
        with pytest.raises(ValueError, match=message), locks.hold(path, "training"):
            pytest.fail("two writers")
    assert not path.exists()


@contextmanager
def orphaned(words, executable=None):
    """Start what starts a writer; end all that stands above it, and nothing else."""
    with running(words, executable) as (launcher, pid):
        try:
            above = [process.pid for process in list_ancestors(pid)]
            for number in above[: above.index(os.getpid())]:  # the writer's parent first
                os.kill(number, signal.SIGKILL)
            launcher.wait()
            assert is_alive(pid)
            yield pid
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def refused(path):
    with (
        pytest.raises(ValueError, match="is under way by process") as caught,
        locks.hold(path, "training"),
    ):
        pytest.fail("two writers")
    return " ".join(str(caught.value).split())


def write_program(folder):
    program = folder / "hold.py"
    program.write_text(HOLD)
    return program


def start_as(name, program, path):
    """A shell that is called by the name of a launcher, waits for what it starts, and its words."""
    return [name, "-c", '"$@"; true', name, sys.executable, program, path]


@pytest.mark.parametrize(
    "name", ["snakemake", "srun", "slurmstepd: [7.0]", "mpirun", "orted", "/opt/bin/prted"]
)
def test_an_orphan_is_named_with_the_command_that_ends_it(tmp_path, name):
    path = tmp_path / ".train.lock"
    with orphaned(start_as(name, write_program(tmp_path), path), "/bin/bash") as pid:
        message = refused(path)
    assert f"by process {pid} on" in message
    assert f"an orphan: what started it has ended ({name} -c" in message
    assert message.endswith(f"end it with `kill {pid}`")


def test_what_a_shell_has_started_is_no_orphan_when_the_shell_ends(tmp_path):
    path = tmp_path / ".train.lock"
    with orphaned(start_as("bash", write_program(tmp_path), path), "/bin/bash") as pid:
        assert refused(path).endswith(f"wait for its end, or end it with `kill {pid}`")


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_a_rank_that_outlives_its_launcher_is_an_orphan(tmp_path, launcher):
    """The programs themselves; of MPICH a proxy on each node, too."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    if launcher == "mpiexec":
        words = [mpiexec(), "-n", 1, sys.executable]
    path = tmp_path / ".train.lock"
    with orphaned([*words, write_program(tmp_path), path]) as pid:
        assert f"by process {pid} on" in refused(path)
        assert "an orphan: what started it has ended (" in refused(path)


def test_a_lock_that_another_user_has_left_is_named_with_a_cure(tmp_path, monkeypatch):
    """As where the folder is shared, and files are for their owner alone."""

    def refuse(path, flags, mode=0o777):
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / ".train.lock"
    with pytest.raises(KeyError), locks.hold(path, "training"):
        raise KeyError  # which frees the lock
    with locks.hold(path, "training"):
        pass
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(locks.os, "open", refuse)
    message = rf"{path}: cannot be written \(Permission denied\); it is another user's: request"
    with pytest.raises(ValueError, match=message), locks.hold(path, "training"):
        pytest.fail("a writer without the lock")
