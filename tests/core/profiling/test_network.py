"""Adding gradients; oracle: the ring formula by hand, and processes that are really started."""

import subprocess
import sys
from math import isfinite

import pytest
import torch

from pipeline_core.config.profile import Network
from pipeline_core.profiling import network
from pipeline_core.profiling.network import (
    SIZES,
    compute_ring_seconds,
    describe_network,
    fit_latency,
    fit_ring,
    measure_network,
)
from tiers import run_first

CPU = torch.device("cpu")


def test_the_ring_by_hand():
    slow = Network(alpha=0.001, bandwidth=1000.0)

    assert compute_ring_seconds(slow, 4000, 1) == 0.0
    # 2 messages of half the bytes; 6 of a quarter.
    assert compute_ring_seconds(slow, 4000, 2) == pytest.approx(2 * (0.001 + 2.0), rel=1e-15)
    assert compute_ring_seconds(slow, 4000, 4) == pytest.approx(6 * (0.001 + 1.0), rel=1e-15)


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_a_ring_is_found_again_from_its_times(n_ranks):
    true = Network(alpha=3.7e-5, bandwidth=2.1e10)
    result = fit_ring(SIZES, [compute_ring_seconds(true, size, n_ranks) for size in SIZES], n_ranks)
    assert result.alpha == pytest.approx(true.alpha, rel=1e-9)
    assert result.bandwidth == pytest.approx(true.bandwidth, rel=1e-9)
    flat = fit_ring(SIZES, [2e-3] * len(SIZES), 2)  # times that do not grow
    assert flat.alpha == pytest.approx(1e-3)
    assert compute_ring_seconds(flat, SIZES[-1], 2) == pytest.approx(2e-3)
    # A latency alone.
    true, sizes = Network(alpha=2e-3, bandwidth=1e9), [400_000, 16]
    seconds = sum(compute_ring_seconds(true, size, n_ranks) for size in sizes)
    quick = Network(alpha=5e-5, bandwidth=1e9)
    assert fit_latency(quick, sizes, seconds, n_ranks).alpha == pytest.approx(2e-3, rel=1e-12)
    assert fit_latency(quick, sizes, 0.0, n_ranks) == quick
    facts = {"alpha": 5e-5, "bandwidth": 1e9, "source": "given", "sizes": [], "seconds": []}
    assert describe_network(quick) == facts


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", run_first([2, 3]))
def test_processes_are_measured(n_ranks):
    result = measure_network(CPU, n_ranks)

    assert result["sizes"] == [1024 * 4**n for n in range(9)]
    assert result["sizes"][-1] == 64 * 2**20
    assert len(result["seconds"]) == 9
    # A message that is 65536 times as long takes longer, however loaded the machine is.
    assert 0 < result["seconds"][0] < result["seconds"][-1]
    assert result["source"] == f"measured between {n_ranks} processes here"
    assert result["backend"] == "gloo"
    assert 1e-7 < result["alpha"] < 1
    assert isfinite(result["bandwidth"])


@pytest.fixture
def started(monkeypatch):
    """The processes that are started meanwhile."""
    result = []

    class Recorded(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            result.append(self)

    monkeypatch.setattr(network.subprocess, "Popen", Recorded)
    return result


def test_processes_that_take_too_long_are_ended(started):
    with pytest.raises(ValueError, match=r"network: 2 processes .* did not end within 0.05 s"):
        measure_network(CPU, patience=0.05)
    assert [process.poll() is None for process in started] == [False, False]


def test_processes_that_fail_are_explained(started, monkeypatch, tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no network here >&2\n[ $RANK = 0 ] && sleep 60\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    with pytest.raises(ValueError, match=r"failed \(.*no network here.*\); give alpha and bandwid"):
        measure_network(CPU)
    assert [process.poll() is None for process in started] == [False, False]
