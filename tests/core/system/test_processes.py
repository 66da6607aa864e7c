"""Processes are found as the kernel has them. Oracle: `subprocess`, which starts them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pipeline_core.system.processes import find_process, is_alive, list_ancestors


def test_a_child_and_its_ancestors():
    words = [sys.executable, "-c", "input()", "(odd) name"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        found = find_process(child.pid)
        assert found.parent == os.getpid()
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        assert found.started == int(fields[19])  # in ticks of the kernel
        assert list_ancestors(child.pid)[0] == find_process(os.getpid())
        child.communicate(b"\n")
    assert find_process(child.pid) is None
    assert not is_alive(child.pid)
    assert is_alive(os.getpid())


def test_one_that_has_ended_and_is_not_asked_for_is_none():
    """Some containers have a first process that never asks for its orphans."""
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays
        os.kill(child.pid, 0)
        assert not is_alive(child.pid)
        assert find_process(child.pid) is None


def test_the_name_of_a_program_may_hold_anything(tmp_path):
    program = tmp_path / "a) (b 7"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as child:
        while "60" not in (found := find_process(child.pid)).command:
            pass  # it is being started
        assert found.parent == os.getpid()
        child.kill()
