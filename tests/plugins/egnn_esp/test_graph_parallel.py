"""Two ranks that share every structure follow the training of one.

Oracle: the engine's trainer on one rank, to whose gradients the parts have to add up.
"""

import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline_core.config.sections import TrainOptions
from pipeline_core.samples import SampleFile
from pipeline_core.task import build_task
from pipeline_core.training.checkpoint import load_model
from pipeline_core.training.trainer import train_run
from pipeline_egnn_esp import graph_parallel
from pipeline_egnn_esp.graph_parallel import train_graphs
from pipeline_egnn_esp.partition_options import ESPPartitionOptions
from pipeline_kernels.partition import Link, partition
from plugins.egnn_esp import trained
from processes import finish, fork

TRAIN = {"epochs": 4, "batch_size": 2, "optimizer": {"lr": 0.01}, "ema_decay": 0.5}
LINK = {"latency": 5e-5, "bandwidth": 1e9}


def prepared(folder):
    """Writes a project with two frames for training, and all before the training."""
    trained.write_project(folder, train=TRAIN, partition={"parts": "graph", "link": LINK})
    run = trained.opened(folder)
    for stage in ("data", "graph", "partition"):
        trained.call(run, stage)


def opened(folder, results):
    """Returns the run with results of its own, beside those of the stages before."""
    target = folder / results / "egnn_esp/small/base"
    if not target.exists():
        target.mkdir(parents=True)
        (folder / results / "datasets").symlink_to(folder / "results/datasets")
        for path in (folder / "results/egnn_esp/small/base").glob("*.h5"):
            (target / path.name).symlink_to(path)
    return trained.opened(folder, results=results)


def run_rank(rank, folder, port, stage):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    trained.call(opened(Path(folder), "two"), stage)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of one rank by the engine, and of one and two ranks by parts."""
    path = tmp_path_factory.mktemp("parts")
    prepared(path)
    train_run(opened(path, "serial"))
    train_graphs(opened(path, "one"))
    for stage in ("train", "evaluate"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        finish([__file__, path, port, stage])
    return path


def outcome(folder, results):
    run = opened(folder, results)
    lines = [json.loads(line) for line in run.history.read_text().splitlines()]
    return load_model(run.model)["weights"], lines


@pytest.mark.parametrize("results", ["one", "two"])
def test_parts_follow_the_trajectory_of_the_whole(folder, results):
    (weights, lines), (expected, reference_lines) = (
        outcome(folder, name) for name in (results, "serial")
    )
    assert len(lines) == TRAIN["epochs"]
    assert weights.keys() == expected.keys()
    for line, other in zip(lines, reference_lines, strict=True):
        for split in ("train", "val"):
            for name, value in other[split].items():
                assert line[split][name] == pytest.approx(value, rel=1e-8)
        assert line["mae"] == pytest.approx(other["mae"], rel=1e-8)
    for name, weight in expected.items():
        np.testing.assert_allclose(weights[name], weight, rtol=1e-8, atol=1e-8)


def test_an_interrupted_training_goes_on_to_the_same_bits(folder):
    run = opened(folder, "resumed")
    train = run.section("train", TrainOptions).model_copy(update={"epochs": 2})
    for part in (replace(run, sections={**run.sections, "train": train}), run):
        train_graphs(part)
    (weights, _), (expected, _) = (outcome(folder, name) for name in ("resumed", "one"))
    for name, weight in expected.items():
        np.testing.assert_array_equal(weights[name], weight)


def test_atoms_are_shared_by_the_link_of_the_section(folder, monkeypatch):
    found = []

    def share(*arguments):
        found.append(arguments[-1])
        return partition(*arguments)

    monkeypatch.setattr("pipeline_egnn_esp.graph_parallel.partition", share)
    run = opened(folder, "linked")
    train = run.section("train", TrainOptions).model_copy(update={"epochs": 1})
    train_graphs(replace(run, sections={**run.sections, "train": train}))
    # Of each structure once: features of degrees 0 to 4 on three channels, in double precision.
    assert found == 3 * [Link(**LINK, bytes_per_node=8 * 25 * 3)]


def test_parts_are_evaluated_as_the_whole(folder):
    """Levels, errors by distance and each predicted element, of one model and of two alike."""
    run = opened(folder, "one")
    whole = ESPPartitionOptions(parts="samples")
    found = {}
    for name, section in {"parts": run.sections["partition"], "whole": whole}.items():
        trained.call(replace(run, sections={**run.sections, "partition": section}), "evaluate")
        found[name] = evaluated(run)
    found["two"] = evaluated(opened(folder, "two"))
    (expected, elements), *others = found.pop("whole"), *found.values()
    assert len(elements) > 10_000
    for metrics, own in others:
        np.testing.assert_allclose(own, elements, rtol=1e-5, atol=1e-6)
        assert flat(metrics) == pytest.approx(flat(expected), rel=1e-5, abs=1e-7)


def evaluated(run):
    """Returns the metrics of matrices, and all predicted elements."""
    metrics = json.loads(run.metrics.read_text())["matrices"]["splits"]
    with SampleFile(run.predictions, "predictions", ["hamiltonian_predicted"]) as file:
        rows = [file.read(number)["hamiltonian_predicted"] for number in range(len(file))]
    return metrics, np.concatenate(rows)


def flat(content, path=""):
    """Returns the numbers of a tree by their paths."""
    found = {}
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        if isinstance(value, (dict, list)):
            found |= flat(value, f"{path}/{key}")
        elif value is not None:
            found[f"{path}/{key}"] = value
    return found


def test_models_are_checked_by_few_atoms(folder):
    one = load_model(opened(folder, "one").model)["probe"]
    assert set(one) == {"batch", "outputs"}
    assert not one["batch"]["pbc"].any()
    assert not one["batch"]["edge_shift"].any()
    assert len(one["batch"]["positions"]) == 12


def test_more_ranks_than_atoms_are_refused(folder):
    samples = build_task(opened(folder, "one"), None).samples("train")
    with pytest.raises(ValueError, match=r"split train: .* has 12 atoms.* 13 ranks; start"):
        graph_parallel._require_atoms(samples, "split train", 13)
    graph_parallel._require_atoms(samples, "split train", 12)


def test_times_of_ranks_are_refused(folder):
    run = opened(folder, "refused")
    train = run.section("train", TrainOptions).model_copy(update={"profile": True})
    with pytest.raises(ValueError, match=r"set train\.profile to false"):
        train_graphs(replace(run, sections={**run.sections, "train": train}))


if __name__ == "__main__":
    sys.exit(fork(lambda rank: run_rank(rank, *sys.argv[1:]), 2))
