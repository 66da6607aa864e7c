"""A third party's potential trains on parts of structures, and is evaluated so, by one option.

Oracle: the same on one rank and whole structures. `plugins/test_parts.py` compares gradients.
"""

import json
import shutil
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import yaml
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write

from core.evaluation.test_evaluate import flatten_tree, read_all
from fake_packages import ATOMS
from forked_ranks import run_on_ranks
from pipeline_atoms.domains import regions
from pipeline_atoms.domains.division import DividedSplits
from pipeline_atoms.neighbours import find_edges
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.world import find_world
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from pipeline_core.task import build_task
from pipeline_core.testing.projects import call
from records import assert_same_weights, read_history, read_weights
from tiers import run_first

N_RANKS = (1, 2, 4)
LARGEST = {1: 1.0, 2: 0.95, 4: 0.9}
"""Part of a structure's graph that one rank holds, at most."""

LOSS = {name: {"kind": "mse"} for name in ("energy", "forces", "stress")}
TRAIN = {"epochs": 2, "batch_size": 2, "precision": "64-true", "loss": LOSS, "clip_norm": 10.0}
EXPERIMENT = {
    "description": "Messages.",
    "plugin": "third",
    "dataset": "wires",
    "graph": {"cutoff": 3.2},
    "train": TRAIN,
    "evaluate": {"splits": ["val"]},
    "variants": {"divided": {"partition": {"parts": "graph"}}},
}
DATASET = {
    "description": "Rattled copper.",
    "sources": [{"path": "wires.extxyz"}],
    "split": {"val": 0.25},
}


def write_project(folder):
    """Write cells that are long in one direction, with labels of effective-medium theory."""
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


def open_run(folder, variant, results="results"):
    points = [ATOMS, EntryPoint("third", "third_party", "pipeline_core")]
    project = Project(folder / "workflows", folder / results, load_registry(points))
    return project.run("wires", variant)


class Sizes:
    """Notes how large a part of a structure the graphs that this rank finds are."""

    def __init__(self, monkeypatch):
        self.largest = 0.0
        monkeypatch.setattr(regions, "find_edges", self.find_edges)

    def find_edges(self, structure, cutoff, receivers):
        n_whole = len(find_edges(structure, cutoff, np.arange(len(structure.positions)))[0])
        edges = find_edges(structure, cutoff, receivers)
        self.largest = max(self.largest, len(edges[0]) / n_whole)
        return edges


def run_as_rank(folder, n_ranks, stage):
    """Run a stage as one of several ranks, and note what part of a graph it holds."""
    sizes = Sizes(pytest.MonkeyPatch())
    call(open_run(folder, "divided", n_ranks), stage)
    (folder / f"{n_ranks}-{stage}-{find_world().rank}.size").write_text(str(sizes.largest))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of whole samples, and what parts of them start from."""
    path = tmp_path_factory.mktemp("wires")
    write_project(path)
    for stage in ("data", "graph", "partition", "train", "evaluate"):
        call(open_run(path, "base"), stage)
    call(open_run(path, "divided"), "partition")
    return path


@pytest.fixture(scope="module", params=run_first(N_RANKS, 2))
def outcome(request, folder):
    """The run of a number of ranks."""
    n_ranks = request.param
    shutil.copytree(folder / "results", folder / str(n_ranks))
    for stage in ("train", "evaluate"):
        done = run_on_ranks(
            "plugins.atoms.domains.test_divided_potential", [folder, n_ranks, stage], n_ranks
        )
        assert done.returncode == 0, done.stderr
    return open_run(folder, "divided", str(n_ranks))


def test_training_by_parts_is_training(folder, outcome):
    run = open_run(folder, "base")
    ours, expected = (read_history(one) for one in (outcome, run))
    for line, other in zip(ours, expected, strict=True):
        for split in ("train", "val", "mae"):
            assert line[split] == pytest.approx(other[split], rel=1e-8)
    assert_same_weights(read_weights(outcome), read_weights(run), rtol=1e-8, atol=1e-8)


def test_evaluation_by_parts_is_evaluation(folder, outcome):
    """Metrics of quantities and elements; the file with labels and predictions, in order."""
    ours, expected = (
        json.loads(run.metrics.read_text())["splits"]["val"]
        for run in (outcome, open_run(folder, "base"))
    )
    assert ours["n_samples"] == expected["n_samples"] == 1
    assert ours["quantities"]["forces"]["count"] == 3 * 24
    for table in ("quantities", "elements"):
        assert flatten_tree(ours[table]) == pytest.approx(flatten_tree(expected[table]), rel=1e-6)
    ours, expected = (read_all(run) for run in (outcome, open_run(folder, "base")))
    assert ours.keys() == expected.keys()
    for name, values in expected.items():
        if values.dtype.kind in "if":
            np.testing.assert_allclose(ours[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def test_no_rank_holds_the_graph_of_a_structure(folder, outcome):
    """Neither in training nor in evaluation, with all that a region adds to own atoms."""
    n_ranks = int(outcome.folder.relative_to(folder).parts[0])
    sizes = [float(path.read_text()) for path in folder.glob(f"{n_ranks}-*.size")]
    assert len(sizes) == 2 * n_ranks
    assert n_ranks == 1 or min(sizes) > 0.2  # one rank evaluates whole structures
    assert max(sizes) <= LARGEST[n_ranks], sizes


def test_a_model_that_does_not_say_how_far_it_sees_is_refused(folder):
    run = open_run(folder, "divided")
    with connect_ranks("cpu", folder) as ranks:
        task = replace(build_task(run), receptive_field=None)
        with pytest.raises(ValueError, match=r"does not state how far .*receptive_field"):
            DividedSplits(run, task, ranks).divide("train", task.samples("train"))


if __name__ == "__main__":
    place, *rest = sys.argv[1:]
    run_as_rank(Path(place), *rest)
