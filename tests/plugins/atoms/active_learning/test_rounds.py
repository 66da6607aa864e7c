"""Rounds are ordinary runs, chained by files. Oracle: the table of the module, by hand."""

import sys

import numpy as np
import pytest
import yaml

from pipeline_atoms.active_learning.labels import label_structure
from pipeline_atoms.active_learning.round import find_round
from pipeline_atoms.config.learning import LabelWith
from pipeline_atoms.testing.example_data import make_alloys
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.testing.projects import write_project

LEARN = {
    "rounds": 2,
    "per_round": 3,
    "random": True,
    "train": {"epochs": 1},
    "label_with": {"calculator": "emt"},
    "md": [{"name": "hot"}],
}


def load(folder, **changes):
    project = write_project(folder, "mace", {})
    path = folder / "workflows/experiments/mace/conformance.yaml"
    content = yaml.safe_load(path.read_text()) | {"members": 2, "learn": LEARN} | changes
    path.write_text(yaml.safe_dump(content))
    return project.load_experiment("mace/conformance")


def test_rounds_start_from_the_round_before_on_data_that_grow(tmp_path):
    runs = load(tmp_path).runs
    starts = {name: run.sections["train"].start_from for name, run in runs.items()}
    folder = tmp_path / "results/mace/conformance"
    assert {n: s and s.removeprefix(f"{folder}/") for n, s in starts.items()} == {
        "base": None,
        "base.2": None,
        "round_1": "base/model.pt",
        "round_1.2": "base.2/model.pt",
        "round_2": "round_1/model.pt",
        "round_2.2": "round_1.2/model.pt",
        "random_1": "base/model.pt",
        "random_2": "random_1/model.pt",
    }
    n_raw = {name: len(run.dataset.find_raw_files()) for name, run in runs.items()}
    assert [n_raw[n] for n in ("base", "round_1", "round_2", "random_2")] == [1, 4, 7, 7]
    assert runs["round_1"].graph == runs["round_1.2"].graph != runs["random_1"].graph
    assert [one.variant for one in runs["round_2"].members] == ["round_2.2"]
    assert find_round(runs["round_2"]).explorers == ("round_1", "round_1.2")
    assert find_round(runs["random_2"]).explorers == ("random_1",)
    assert {run.seed for name, run in runs.items() if "." in name} == {1}
    simulated = [n for n, run in runs.items() if getattr(run.sections["infer"], "md", [])]
    assert simulated == ["base", "round_2"]
    assert runs["round_2"].sections["train"].epochs == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variants": {"round_1": {"seed": 3}}}, r"variants\.round_1: is a round of `learn`"),
        ({"dataset": None}, "learn: needs a dataset of structures"),
        ({"members": 1}, "learn: a committee picks"),
        (
            {"learn": LEARN | {"md": [{"name": "hot", "uncertainty": {"stop_above": 1.0}}]}},
            "'hot' has limits of uncertainty",
        ),
    ],
)
def test_what_cannot_be_a_round_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, **changes)


FAIL = """
import sys
text = open(sys.argv[1]).read().splitlines()
text[1] += " energy=nan"
open(sys.argv[2], "w").write("\\n".join(text))
"""


def write_labels(folder, run, good):
    """Label three picks of a round, those that are not good by a program that does not converge."""
    program = folder / "fail.py"
    program.write_text(FAIL)
    failing = LabelWith(command=f"{sys.executable} {program} {{structure}} {{label}}")
    outcomes = []
    for i, path in enumerate(find_round(run).labels):
        options = LabelWith(calculator="emt") if i in good else failing
        outcomes.append(label_structure(make_alloys(4, seed=5)[i], options, path))
    return outcomes


def import_round(run):
    """Import the data of a round; return energies and where each sample is from."""
    run.registry.select_hook("data", run.dataset.options.plugin)(run=run.dataset)
    with SampleFile(run.dataset.data, "data") as samples:
        rows = [samples.read(i) for i in range(len(samples))]
    return [float(row["energy"]) for row in rows], [str(row["source"]) for row in rows]


@pytest.mark.slow
def test_a_label_that_has_not_converged_is_left_out(tmp_path):
    run = load(tmp_path).run("round_1")
    outcomes = write_labels(tmp_path, run, good={1})
    assert outcomes == ["not converged", "labelled", "not converged"]
    energies, places = import_round(run)
    assert np.isfinite(energies).all()
    assert [p for p in places if "labels/" in p] == ["round_1/labels/1.extxyz:0"]


@pytest.mark.slow
def test_a_round_without_any_label_is_refused_with_the_cure(tmp_path):
    run = load(tmp_path).run("round_1")
    write_labels(tmp_path, run, good=set())
    with pytest.raises(ValueError, match=r"none of the 3 labels of picks can be used, first .*NaN"):
        import_round(run)
