"""Throughput, partitions and scaling: what is counted, fitted, and refused.

Oracles: brute force over all pairs, the kernel's metrics, translation symmetry, exact lines, and
sums written out by hand.
"""

import json
from dataclasses import asdict
from typing import get_args

import numpy as np
import pytest
import torch

from pipeline_core.config.sections import Link
from pipeline_core.training.balance.cost_model import CostModel
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.partition import MESSAGE, Method, Rows, partition
from pipeline_kernels.partition.synthetic import find_edges
from pipeline_papers.egnn_esp import studies
from pipeline_papers.egnn_esp.studies import ranks
from pipeline_papers.egnn_esp.studies.options import (
    ESPStudyOptions,
    Packing,
    Partitions,
    Scaling,
    Throughput,
    Weak,
)
from pipeline_papers.egnn_esp.studies.partitions import study_partitions
from pipeline_papers.egnn_esp.studies.ranks import Job, measure_passes
from pipeline_papers.egnn_esp.studies.scaling import Machine, study_scaling
from pipeline_papers.egnn_esp.studies.throughput import study_throughput
from pipeline_papers.egnn_esp.studies.volumes import Volumes, count_volumes_of_parts, pack_box
from plugins.drawn import load_shipped

BASIS = Basis({"H": (0,), "O": (0, 1)})
SMALL = ESPOptions.model_validate(
    {"channels": 2, "lmax": 2, "layers": 2, "heads": 1, "attention_channels": 2,
     "value_channels": 2, "hidden_channels": 2, "feed_forward_channels": 2, "radial_functions": 3}
)  # fmt: skip
PACKING = Packing(atoms=120, box=(14.0, 13.0, 12.0))
CUTOFF = 5.0
CPU = torch.device("cpu")


@pytest.mark.slow
def test_volumes_are_those_of_the_edges():
    """Against the metrics of the kernel, and all pairs of atoms one by one."""
    structure = pack_box(PACKING, (1, 8), 0)
    edges = find_edges(structure.positions, structure.cell, CUTOFF)
    labels = np.random.default_rng(0).integers(5, size=120)
    actual, known = (
        count_volumes_of_parts(structure, labels, CUTOFF),
        Rows.of(edges, len(labels)).measure(labels, 5),
    )
    for name in ("neighbours", "received", "edges"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(known, name))
    apart = structure.positions[:, None] - structure.positions
    apart -= np.rint(apart / np.diagonal(structure.cell)) * np.diagonal(structure.cell)
    near = (np.linalg.norm(apart, axis=2) <= CUTOFF) & ~np.eye(120, dtype=bool)
    for part in range(5):
        crossing = near[labels == part][:, labels != part].sum()
        assert actual.crossing[part] == crossing
    assert actual.atoms.sum() == 120


def test_parts_are_those_of_the_kernel():
    """The steps are called one by one to be timed; together they do what `partition` does."""
    methods = get_args(Method)
    options = Partitions(
        packing=PACKING, cutoffs=[CUTOFF], parts=[4, 6], drawn=6, methods=[*methods]
    )
    content, drawn, shared = study_partitions(options, (1, 8), MESSAGE, 0)
    structure = pack_box(PACKING, (1, 8), 0)
    edges = find_edges(structure.positions, structure.cell, CUTOFF)
    assert content["edges"] == {f"{CUTOFF:g}": len(edges)}
    places = structure.positions, structure.cell, structure.pbc
    assert tuple(drawn["labels"]) == methods
    for method, labels in drawn["labels"].items():
        np.testing.assert_array_equal(labels, partition(*places, edges, 6, CUTOFF, method))
        known = Rows.of(edges, len(labels)).measure(np.array(labels), 6)
        np.testing.assert_array_equal(drawn["traffic"][method], known.traffic)
        of_method = {"method": method, "parts": 6, **known.summarize()}
        (one,) = (s for s in shared if s.record == s.record | of_method)
        exact = count_volumes_of_parts(structure, np.array(labels), CUTOFF)
        for name, numbers in asdict(exact).items():
            np.testing.assert_array_equal(getattr(one.volumes, name), numbers)


def test_what_cannot_be_studied_is_refused():
    with pytest.raises(ValueError, match=r"16 is not in partitions\.parts"):
        ESPStudyOptions.model_validate({"partitions": {"parts": [8], "drawn": 16}})
    options = Partitions(packing=PACKING, parts=[200], drawn=None)
    with pytest.raises(ValueError, match="120 atoms cannot be shared between 200 parts"):
        study_partitions(options, (1,), MESSAGE, 0)
    with pytest.raises(ValueError, match="less than twice as wide as the cutoff of 7 Å"):
        count_volumes_of_parts(pack_box(PACKING, (1,), 0), np.zeros(120, dtype=np.int64), 7.0)


def test_throughput_is_messages_over_seconds():
    options = Throughput(channels=[2, 3], messages=[50, 10], degree=20, repeats=2)
    actual = study_throughput(options, SMALL, CPU)
    assert [curve["channels"] for curve in actual["curves"]] == [2, 3]
    for curve in actual["curves"]:
        assert curve["messages"] == [10, 50]
        rates = [n / t for n, t in zip(curve["messages"], curve["seconds"], strict=True)]
        assert curve["per_second"] == rates
        # Section 4.2 of the paper: 3 (lmax + 1)² E numbers, here of 4 bytes.
        assert curve["message_bytes"] == 3 * 9 * curve["channels"] * 4


def test_slow_calls_end_a_curve():
    options = Throughput(channels=[2], messages=[10, 20, 40], repeats=1, seconds_limit=1e-9)
    (curve,) = study_throughput(options, SMALL, CPU)["curves"]
    assert curve["messages"] == [10]


def test_the_slowest_part_ends_a_pass():
    """Two parts of which one has twice the work and three neighbours; all by hand."""
    link = Link(latency=1e-3, bandwidth=1e4)
    machine = Machine(CostModel(0.5, {"atom": 0.1, "edge": 0.01}), link, 2, 100, 40)
    volumes = Volumes(*np.array([[10, 20], [100, 200], [1, 3], [5, 7], [50, 10]]))
    received = [2 * 100 * 5 + 40 * 25, 2 * 100 * 7 + 40 * 5]
    np.testing.assert_allclose(machine.count_bytes_received(volumes), received)
    parts = [
        0.5 + 1.0 + 1.0 + 3e-3 + received[0] / 1e4,
        0.5 + 2.0 + 2.0 + 9e-3 + received[1] / 1e4,
    ]
    actual = machine.record(volumes)
    assert actual["seconds"] == pytest.approx(max(parts))
    assert actual["fastest"] == pytest.approx(min(parts))
    assert actual["idle"] == pytest.approx(max(parts) - np.mean(parts))
    whole = sum(actual[name] for name in ("compute", "latency", "transfer", "idle"))
    assert whole == pytest.approx(actual["seconds"])
    assert machine.record(volumes, 2.0)["compute"] == pytest.approx(2 * actual["compute"])


@pytest.fixture
def one_second_an_edge(monkeypatch):
    """Passes that take a second an edge, in place of processes."""

    def passes(model, basis, options, jobs, device, n):
        edges = []
        for job in jobs:
            actual = count_volumes_of_parts(job.structure, job.owners, job.cutoff)
            edges.append(actual.edges.astype(float))
        seconds = np.array(edges)
        link = [1e-3 + rows * 72 / 1e6 for rows in ranks.LINK_ROWS]
        return ranks.Passes(seconds, 0 * seconds, link if n == 2 else [])

    monkeypatch.setattr("pipeline_papers.egnn_esp.studies.scaling.measure_passes", passes)


def test_projections_follow_from_what_was_measured(one_second_an_edge):
    """With a second an edge, 1 ms a message and 1 MB/s; copies in a row repeat each other."""
    weak = Weak(packing=PACKING, ranks=2, cutoff=CUTOFF, cube=[(1, 1, 1)])
    options = Scaling(ranks=[1, 2], packing=PACKING, cutoff=CUTOFF, weak=weak)
    sharing = Partitions(packing=PACKING, cutoffs=[CUTOFF], parts=[4], drawn=None)
    _, _, shared = study_partitions(sharing, BASIS.elements, MESSAGE, 0)
    actual = study_scaling(options, SMALL, BASIS, shared, CPU, 0)
    assert actual["cost_model"]["edge"] == pytest.approx(1.0)
    assert actual["link"]["latency"] == pytest.approx(1e-3)
    assert actual["link"]["bandwidth"] == pytest.approx(1e6)
    assert (actual["row_bytes"], actual["block_bytes"]) == (4 * 9 * 2, 4 * 4 * 4)
    modes = [(one["mode"], one["ranks"], one["atoms"]) for one in actual["measured"]]
    assert sorted(modes) == [
        ("strong", 1, 240), ("strong", 2, 240), ("weak", 1, 120), ("weak", 2, 240),
    ]  # fmt: skip
    for one in actual["measured"]:
        assert one["seconds"] == pytest.approx(one["modelled"], rel=1e-3)
    for one, record in zip(shared, actual["projected"], strict=False):
        volumes = one.volumes
        assert (record["mode"], record["method"]) == ("strong", one.record["method"])
        n_bytes = 2 * 72 * volumes.received + 64 * volumes.crossing / 2
        seconds = volumes.edges + 3e-3 * volumes.neighbours + n_bytes / 1e6
        assert record["seconds"] == pytest.approx(seconds.max(), rel=1e-4)
    lines = [one for one in actual["projected"] if one["mode"] == "line"]
    assert [one["ranks"] for one in lines] == [2, 4, 8]
    edges = [one["edges"] for one in lines]
    assert edges == [edges[0], 2 * edges[0], 4 * edges[0]]


def measure(n_ranks):
    structure = pack_box(PACKING, BASIS.elements, 0)
    labels = (structure.positions[:, 0] > 7).astype(np.int64)
    jobs = [Job(structure, labels, 3.0), Job(structure, labels, 4.0)]
    options = Scaling(work_bytes=2**24, repeats=1)
    return measure_passes(SMALL, BASIS, options, jobs, CPU, n_ranks)


@pytest.mark.slow
def test_two_processes_measure_passes_and_their_link():
    actual = measure(2)
    assert actual.seconds.shape == actual.communication.shape == (2, 2)
    assert (actual.communication > 0).all()
    assert (actual.communication < actual.seconds).all()
    assert len(actual.link) == len(ranks.LINK_ROWS)
    assert min(actual.link) > 0


def test_a_rank_that_fails_is_explained(monkeypatch):
    def fail(function, n_ranks, device):
        raise ValueError("there is no GPU")

    monkeypatch.setattr(ranks, "call_on_ranks", fail)
    with pytest.raises(ValueError, match=r"3 processes .* \(there is no GPU\); use fewer"):
        measure(3)


def test_results_are_summed_up(one_second_an_edge):
    wanted = {
        "throughput": {"channels": [2], "messages": [20], "repeats": 1},
        "partitions": {"parts": [2, 4], "cutoffs": [CUTOFF], "drawn": 4},
        "scaling": {"ranks": [1, 2], "cutoff": CUTOFF, "weak": {"ranks": 2, "cutoff": CUTOFF}},
    }
    for place in (wanted["partitions"], wanted["scaling"], wanted["scaling"]["weak"]):
        place["packing"] = PACKING.model_dump(mode="json")
    options = ESPStudyOptions.model_validate_json(json.dumps(wanted))
    content = studies.study(options, SMALL, BASIS, CPU, 0, Link())
    assert json.loads(json.dumps(content)) == content
    assert set(content) == {"throughput", "partitions", "domains", "scaling", "bulk"}
    assert np.shape(content["domains"]["labels"]["auto"]) == (120,)
    assert np.shape(content["domains"]["traffic"]["auto"]) == (4, 4)
    summary = studies.summarize(content)
    by_method = summary["partitions"]["5"]["metis"]
    records = [one for one in content["partitions"]["records"] if one["method"] == "metis"]
    assert by_method["neighbours"] == [one["neighbours_mean"] for one in records]
    cube = summary["scaling"]["cube"]["5"]["low_nn"]
    assert cube["efficiency"][0] == 1
    assert cube["efficiency"] == [cube["seconds"][0] / one for one in cube["seconds"]]
    assert summary["scaling"]["strong"]["5"]["grid"]["ranks"] == [2, 4]


def test_without_a_study_the_engine_measures(tmp_path):
    experiment = load_shipped(tmp_path, "egnn_esp/smoke")
    base, overlap = (experiment.runs[name] for name in ("base", "overlap"))
    assert base.get_section("profile", ESPStudyOptions).has_work
    assert not overlap.get_section("profile", ESPStudyOptions).has_work
    assert studies.profile_run(base) is studies.profile_run(overlap) is None
