"""What the files of an experiment show to be wrong is refused before any stage runs."""

import pytest

from fake_packages import forget, install
from pipeline_core.project.consistency import list_labels
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry

MODEL = """
from pipeline_core import hookimpl
from pipeline_core.config.sections import Section
from pipeline_core.model_info import ModelInfo

class Options(Section):
    moved = {"cutoff": "graph.cutoff", "length": "bond"}
    bond: float = 3.0

def check(sections):
    if sections["model"].bond > sections["graph"].cutoff:
        raise ValueError(f"model.bond is {sections['model'].bond}; take a shorter one")

@hookimpl
def model():
    return ModelInfo(
        name="toy", summary="A toy", citation="none", options=Options, check=check,
        predicts=("energy", "forces", "stress"),
    )
"""
EXPERIMENT = """\
description: A test
plugin: toy
dataset: water
train:
  loss: {energy: {}, forces: {unit: meV/angstrom}}
"""
DATASET = """\
description: A test
sources: [{path: water.xyz}]
labels: [energy, forces]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    site = tmp_path / "site"
    install(site, "toy", MODEL)
    monkeypatch.syspath_prepend(site)
    workflows = tmp_path / "workflows"
    for name in ("datasets", "experiments/toy"):
        (workflows / name).mkdir(parents=True)
    (workflows / "datasets/water.yaml").write_text(DATASET)
    (workflows / "datasets/water.xyz").touch()
    (workflows / "experiments/toy/first.yaml").write_text(EXPERIMENT)
    yield Project(workflows, tmp_path / "results", load_registry())
    forget(site)


def edit(project, old, new, file="experiments/toy/first.yaml"):
    path = project.workflows / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "train:\n", "model: {bond: 5.5}\ngraph: {cutoff: 5}\ntrain:\n",
            r"first\.yaml:4: model\.bond is 5\.5",
        ),
        (
            "train:\n",
            "variants:\n  near:\n    model: {bond: 6.0}\n    graph: {cutoff: 5.0}\ntrain:\n",
            r"first\.yaml:6: model\.bond is 6\.0",
        ),
        (
            "train:\n", "model:\n  bond: 2.0\n  cutoff: 4.5\ntrain:\n",
            r"first\.yaml:6: model\.cutoff: moved to graph\.cutoff; delete it here, and set graph",
        ),
        (
            "train:\n", "model:\n  length: 2.0\ntrain:\n",
            r"first\.yaml:5: model\.length: moved to model\.bond; delete it here, and set model\.b",
        ),
        (
            "train:\n", "variants:\n  near:\n    model: {cutoff: 6.0}\ntrain:\n",
            r"first\.yaml:6: variants\.near\.model\.cutoff: moved to graph\.cutoff",
        ),
        (
            "forces: {", "froces: {",
            r"first\.yaml:5: train\.loss\.froces: plugin 'toy' predicts energy, forces, stress "
            r"only; did you mean 'forces'\?",
        ),
        (
            "forces: {", "magmoms: {",
            r"train\.loss\.magmoms: .*only; remove the term",
        ),
        (
            "energy: {}", "energy: {unit: eVv}",
            r"first\.yaml:5: train\.loss\.energy\.unit: unknown unit of energy 'eVv'",
        ),
        (
            "energy: {}", "stress: {}",
            r"train\.loss\.stress: .*water\.yaml does not hold it \(labels: energy, forces\)",
        ),
        (
            "train:\n", "members: 2\nvariants: {base.2: {}}\ntrain:\n",
            "is the name of a member of the committee",
        ),
        (
            "train:\n", "members: 2\nevaluate: {splits: [test]}\ntrain:\n",
            r"evaluate\.splits: a committee is calibrated",
        ),
        (
            "train:\n", "infer: {md: [{name: a, uncertainty: {}}]}\ntrain:\n",
            r"infer\.md: 'a' has limits of uncertainty",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused_by_name(project, old, new, message):
    assert project.load_experiment("toy/first").model_info.name == "toy"
    edit(project, old, new)
    with pytest.raises(ValueError, match=message):
        project.load_experiment("toy/first")


def test_the_labels_of_a_mixture_are_those_of_its_parts(project):
    folder = project.workflows / "datasets"
    (folder / "other.yaml").write_text(DATASET.replace("forces", "stress"))
    (folder / "both.yaml").write_text(
        "description: Both\nparts: [{dataset: water}, {dataset: other}]\n"
    )
    labels = list_labels(project.load_dataset("both"))
    assert labels == ["energy", "forces", "stress"]
    edit(project, "dataset: water", "dataset: both")
    edit(project, "energy: {}", "stress: {}")
    assert project.load_experiment("toy/first").model_info.name == "toy"


def test_data_that_a_plugin_makes_may_hold_anything(project):
    path = project.workflows / "datasets/water.yaml"
    path.write_text(path.read_text() + "plugin: toy\n")
    edit(project, "energy: {}", "stress: {}")
    assert list_labels(project.load_dataset("water")) is None
    assert project.load_experiment("toy/first").model_info.name == "toy"


def test_members_are_runs_named_after_their_variant(project):
    variants = "{other: {members: 3, seed: 7}, single: {members: 1}, tuned: {train: TUNED}}"
    variants = variants.replace("TUNED", "{start_from: 'variant:base'}")
    edit(project, "train:\n", f"members: 2\nvariants: {variants}\ntrain:\n")
    runs = project.load_experiment("toy/first").runs
    names = ["base", "base.2", "other", "other.2", "other.3", "single", "tuned", "tuned.2"]
    assert list(runs) == names
    assert [run.seed for run in runs.values()] == [0, 1, 7, 8, 9, 0, 0, 1]
    members = {name: len(run.members) for name, run in runs.items() if run.members}
    assert members == {"base": 1, "other": 2, "tuned": 1}
    # A member starts from the member of the same number.
    assert runs["tuned.2"].list_inputs("train")["start_from"] == runs["base.2"].model
    assert runs["tuned"].list_inputs("train")["start_from"] == runs["base"].model
