"""Oracle: the page faults that the system counts."""

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, sys, torch
from pipeline_core.training.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    for _ in range(4):
        torch.ones(2**24)
for _ in range(4):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def count_faults(what: str) -> int:
    result = subprocess.run(
        [sys.executable, "-c", STEPS, what], check=True, capture_output=True, text=True
    )
    return int(result.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of glibc")
def test_later_steps_touch_few_new_pages():
    given_back, kept = count_faults("give back"), count_faults("keep")
    assert kept < given_back / 10
