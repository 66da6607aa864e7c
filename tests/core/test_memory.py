"""Memory of the machine and of its control groups."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_core import memory
from pipeline_core.memory import PROCESS, describe_bytes, find_free_memory

tells = pytest.mark.skipif(
    not (PROCESS / "clear_refs").exists(), reason="the system does not tell its memory"
)


@tells
def test_less_is_free_than_the_machine_has():
    assert 0 < find_free_memory() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@tells
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
    monkeypatch.setattr(memory, "PROCESS", tmp_path)
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)

    assert find_free_memory() == 5_000_000 - 3_000_000 + 400_000


def test_bytes_are_told_in_units_of_their_size():
    told = [describe_bytes(count) for count in (12, 1234, 2.5e9, 9.999e11, 1.09e13, 5e16)]
    assert told == ["12 bytes", "1.23 kB", "2.5 GB", "1 TB", "10.9 TB", "50 PB"]


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FAULTS = """
import resource
import pipeline_core.calculator
import torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[madvise]" not in HUGE_PAGES.read_text(),
    reason="the system gives huge pages to nobody, or to all",
)
def test_a_calculator_asks_for_huge_pages_but_where_the_user_does_not_want_them():
    # Oracle: the page faults that the system counts.
    def count_faults(environment):
        result = subprocess.run(
            [sys.executable, "-c", FAULTS], env=environment, check=True, capture_output=True
        )
        return int(result.stdout)

    asked = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    assert count_faults(asked) < count_faults(asked | {"THP_MEM_ALLOC_ENABLE": "0"}) / 10
