"""Adding gradients; oracle: the ring formula by hand, and processes that are really started."""

from math import isfinite

import pytest
import torch

from pipeline_core.config.sections import Link
from pipeline_core.profiling import network
from pipeline_core.profiling.network import (
    SIZES,
    describe_link,
    fit_latency,
    fit_ring,
    measure_network,
    read_link,
)
from tiers import run_first

CPU = torch.device("cpu")


def test_the_ring_by_hand():
    slow = Link(latency=0.001, bandwidth=1000.0)

    assert slow.time_ring(4000, 1) == 0.0
    # 2 messages of half the bytes; 6 of a quarter.
    assert slow.time_ring(4000, 2) == pytest.approx(2 * (0.001 + 2.0), rel=1e-15)
    assert slow.time_ring(4000, 4) == pytest.approx(6 * (0.001 + 1.0), rel=1e-15)


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_a_ring_is_found_again_from_its_times(n_ranks):
    true = Link(latency=3.7e-5, bandwidth=2.1e10)
    result = fit_ring(SIZES, [true.time_ring(size, n_ranks) for size in SIZES], n_ranks)
    assert result.latency == pytest.approx(true.latency, rel=1e-9)
    assert result.bandwidth == pytest.approx(true.bandwidth, rel=1e-9)
    flat = fit_ring(SIZES, [2e-3] * len(SIZES), 2)  # times that do not grow
    assert flat.latency == pytest.approx(1e-3)
    assert flat.time_ring(SIZES[-1], 2) == pytest.approx(2e-3)
    # A latency alone.
    true, sizes = Link(latency=2e-3, bandwidth=1e9), [400_000, 16]
    seconds = sum(true.time_ring(size, n_ranks) for size in sizes)
    quick = Link(latency=5e-5, bandwidth=1e9)
    assert fit_latency(quick, sizes, seconds, n_ranks).latency == pytest.approx(2e-3, rel=1e-12)
    assert fit_latency(quick, sizes, 0.0, n_ranks) == quick
    facts = {"alpha": 5e-5, "bandwidth": 1e9, "source": "given", "sizes": [], "seconds": []}
    assert describe_link(quick) == facts
    assert read_link(facts) == quick


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


def test_processes_that_fail_are_explained(monkeypatch):
    def fail(function, n_ranks, device):
        raise ValueError("no network here")

    monkeypatch.setattr(network, "call_on_ranks", fail)
    with pytest.raises(ValueError, match=r"failed \(no network here\); give latency and bandwidth"):
        measure_network(CPU)
