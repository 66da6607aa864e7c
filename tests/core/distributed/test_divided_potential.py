"""A third party's potential trains on parts of structures, by one option of the experiment.

Oracle: the same on one rank and whole structures.
"""

import json
import os
import socket
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write

from pipeline_core.builtin import load_registry
from pipeline_core.distributed.division import DividedSplits
from pipeline_core.distributed.pieces import Piece
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.project import Project
from pipeline_core.task import build_task
from pipeline_core.testing.projects import call
from pipeline_core.training.checkpoint import load_model
from processes import finish, fork

LOSS = {name: {"kind": "mse"} for name in ("energy", "forces", "stress")}
TRAIN = {"epochs": 2, "batch_size": 2, "precision": "64-true", "loss": LOSS, "clip_norm": 10.0}
EXPERIMENT = {
    "description": "Messages.",
    "plugin": "third",
    "dataset": "wires",
    "graph": {"cutoff": 3.2},
    "train": TRAIN,
    "variants": {"divided": {"partition": {"parts": "graph"}}},
}
DATASET = {
    "description": "Rattled copper.",
    "sources": [{"path": "wires.extxyz"}],
    "split": {"val": 0.25},
}


def write_project(folder):
    """Writes cells that are long in one direction, with labels of effective-medium theory."""
    random, frames = np.random.default_rng(0), []
    for _ in range(4):
        atoms = bulk("Cu", "fcc", a=3.7, cubic=True).repeat((6, 1, 1))
        atoms.positions += random.normal(0, 0.1, atoms.positions.shape)
        atoms.calc = EMT()
        atoms.get_potential_energy()
        atoms.get_stress()
        frames.append(atoms)
    datasets, experiments = folder / "workflows/datasets", folder / "workflows/experiments"
    for path in (datasets, experiments):
        path.mkdir(parents=True)
    write(datasets / "wires.extxyz", frames)
    (datasets / "wires.yaml").write_text(yaml.safe_dump(DATASET))
    (experiments / "wires.yaml").write_text(yaml.safe_dump(EXPERIMENT))


def open_run(folder, variant):
    points = [EntryPoint("third", "third_party", "pipeline_core")]
    project = Project(folder / "workflows", folder / "results", load_registry(points))
    return project.run("wires", variant)


def compute_gradients(run, ranks, divided):
    """Returns the gradient of the loss of all training structures, of each parameter."""
    task = build_task(run)
    task.module.double()
    samples, ways = task.samples("train"), task.objective.weights
    numbers = range(len(samples))
    if divided:
        pieces = [*map(DividedSplits(run, task, ranks).divide("train", samples), numbers)]
    else:
        pieces = [Piece(samples.batch([number])) for number in numbers]
    counts = {name: sum(task.objective.counts(p.batch)[name] for p in pieces) for name in ways}
    counts = {name: ranks.all_reduce_sum(count.double()) for name, count in counts.items()}
    for piece in pieces:
        sums = task.objective.sums(piece.predict(task.module), piece.batch)
        sum(sums[name].double() / counts[name] for name in ways).backward()
    return {
        name: ranks.all_reduce_sum(weight.grad.clone())
        for name, weight in task.module.named_parameters()
    }


def run_rank(rank, folder, n_ranks, ports):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "MASTER_PORT": ports[0]}
    run = open_run(folder, "divided")
    with connect_ranks("cpu", folder) as ranks:
        torch.save(compute_gradients(run, ranks, divided=True), folder / f"{n_ranks}-{rank}.pt")
    os.environ["MASTER_PORT"] = ports[1]
    run.history.unlink(missing_ok=True)
    call(run, "train")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("wires")
    write_project(path)
    for stage in ("data", "graph", "partition", "train"):
        call(open_run(path, "base"), stage)
    call(open_run(path, "divided"), "partition")
    return path


@pytest.fixture(scope="module", params=[1, 2, 4])
def outcome(request, folder):
    """Gradients of rank 0, weights and history of a number of ranks."""
    n_ranks, run = request.param, open_run(folder, "divided")
    finish([__file__, folder, n_ranks, free_port(), free_port()])
    lines = [json.loads(line) for line in run.history.read_text().splitlines()]
    weights = load_model(run.model)["weights"]
    for path in (run.history, run.model, run.state / "last.pt"):
        path.unlink()
    return torch.load(folder / f"{n_ranks}-0.pt"), weights, lines


def test_gradients_of_parts_add_up(folder, outcome):
    """Those of energies, forces and stress, through second derivatives."""
    with connect_ranks("cpu", folder) as ranks:
        expected = compute_gradients(open_run(folder, "base"), ranks, divided=False)
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest > 1e-3
    for name, gradient in expected.items():
        assert float((outcome[0][name] - gradient).abs().max()) < 1e-10 * max(1, largest), name


def test_training_by_parts_is_training(folder, outcome):
    run = open_run(folder, "base")
    lines = [json.loads(line) for line in run.history.read_text().splitlines()]
    for line, other in zip(outcome[2], lines, strict=True):
        for split in ("train", "val", "mae"):
            assert line[split] == pytest.approx(other[split], rel=1e-8)
    for name, weight in load_model(run.model)["weights"].items():
        torch.testing.assert_close(outcome[1][name], weight, rtol=1e-8, atol=1e-8)


def test_a_model_that_does_not_say_how_far_it_sees_is_refused(folder):
    run = open_run(folder, "divided")
    with connect_ranks("cpu", folder) as ranks:
        task = replace(build_task(run), receptive_field=None)
        with pytest.raises(ValueError, match=r"does not say how far .*receptive_field"):
            DividedSplits(run, task, ranks).divide("train", task.samples("train"))


if __name__ == "__main__":
    place, number, *ports = sys.argv[1:]
    sys.exit(fork(lambda rank: run_rank(rank, Path(place), int(number), ports), int(number)))
