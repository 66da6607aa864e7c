"""Memory of a call; oracle: tensors of known size."""

import pytest
import torch

from pipeline_core.profiling.memory import find_free_bytes, measure_peak
from pipeline_core.system import memory

MIB = 2**20
CPU = torch.device("cpu")
tells = pytest.mark.skipif(
    not (memory._PROCESS / "clear_refs").exists(), reason="the system does not tell its memory"
)


def fill(mebibytes, device=CPU):
    return torch.ones(mebibytes * MIB // 4, device=device).sum()


@pytest.mark.slow
@tells
def test_the_peak_is_what_was_allocated_within_a_call():
    kept = torch.ones(16 * MIB // 4)  # does not count: it was there before

    # The system may take back a page or two of what was there before.
    assert 63 * MIB <= measure_peak(lambda: fill(64), CPU) < 72 * MIB
    assert measure_peak(lambda: fill(8), CPU) < 16 * MIB  # the peak before is forgotten
    assert kept.sum() > 0


@pytest.mark.slow
def test_without_proc_there_is_no_peak_but_the_call_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_PROCESS", tmp_path)
    calls = []

    assert measure_peak(lambda: calls.append(1), CPU) is None
    assert calls == [1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_peak_of_a_gpu():
    device = torch.device("cuda", 0)

    assert 64 * MIB <= measure_peak(lambda: fill(64, device), device) < 66 * MIB
    assert find_free_bytes(device) <= torch.cuda.get_device_properties(device).total_memory
