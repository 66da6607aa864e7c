"""Memory of the machine and of its control groups."""

import mmap
import os
import platform
import subprocess
import sys

import pytest

from pipeline_core.system import memory
from pipeline_core.system.memory import (
    describe_bytes,
    find_free_memory,
    find_resident_memory,
    find_total_memory,
)


def test_less_is_free_than_the_machine_has():
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert find_total_memory() == total
    assert 0 < find_free_memory() < total


def test_this_process_holds_what_it_has_filled():
    """Pages of their own: a `bytearray` may be given pages that this process has filled before."""
    size, before = 2**25, find_resident_memory()
    with mmap.mmap(-1, size) as pages:
        pages.write(b"x" * size)
        assert 0.9 * size < find_resident_memory() - before < 3 * size


def test_a_job_has_no_more_than_its_control_group(monkeypatch, tmp_path):
    step = tmp_path / "job" / "step"
    step.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("4:memory:/other\n0::/job/step\n")
    for name, text in {
        "memory.max": "5000000\n",
        "memory.current": "3000000\n",
        "memory.stat": "anon 2000000\ninactive_file 400000\n",
    }.items():
        (step.parent / name).write_text(text)
    (step / "memory.max").write_text("max\n")
    monkeypatch.setattr(memory, "_PROCESS", tmp_path)
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)

    assert find_free_memory() == 5_000_000 - 3_000_000 + 400_000


def test_bytes_are_told_in_units_of_their_size():
    told = [describe_bytes(count) for count in (12, 1234, 2.5e9, 9.999e11, 1.09e13, 5e16)]
    assert told == ["12 bytes", "1.23 kB", "2.5 GB", "1 TB", "10.9 TB", "50 PB"]


STEPS = """
import resource, sys
from pipeline_core.system.memory import keep_freed_memory
if sys.argv[1] == "keep":
    print(keep_freed_memory())
def step():
    for _ in range(4):
        b"x" * 2**26
for _ in range(4):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def count_faults(what, **environment):
    """Return what is printed: whether memory is kept, if it is asked for, and faults of a step."""
    plain = {name: x for name, x in os.environ.items() if not name.startswith("MALLOC_")}
    return subprocess.run(
        [sys.executable, "-c", STEPS, what],
        check=True, capture_output=True, text=True, env=plain | environment,
    ).stdout.split()  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of glibc")
def test_later_steps_touch_few_new_pages_but_where_the_user_has_told_glibc_otherwise():
    """Oracle: the page faults that the system counts."""
    (given_back,), (keeps, kept) = count_faults("give back"), count_faults("keep")
    assert keeps == "True"
    assert int(kept) < int(given_back) / 10
    keeps, told = count_faults("keep", MALLOC_MMAP_THRESHOLD_="1000000")
    assert keeps == "False"
    assert int(told) > int(given_back) / 2
