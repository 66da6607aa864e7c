"""Runs: variants, shared artifacts, and what a stage depends on."""

import re
import textwrap
from types import SimpleNamespace

import pytest

from fake_packages import ATOMS, find_points, install, write_model_source
from pipeline_atoms.config.graph import GraphOptions
from pipeline_core.config.sections import Section, TrainOptions
from pipeline_core.project.project import Project
from pipeline_core.report.story import list_limits
from pipeline_core.stages.builtin import load_registry
from pipeline_core.workflow.rules import Plan

EXPERIMENT = """\
description: A test
plugin: toy
dataset: water
seed: 7
model: {width: 4}
graph: {cutoff: 5.0}
train: {epochs: 3, optimizer: {lr: 0.5}}
variants:
  longer: {train: {epochs: 6}}
  farther: {graph: {cutoff: 6.0}}
  farther_and_longer: {graph: {cutoff: 6.0}, train: {epochs: 6}}
  wider: {model: {width: 8}}
"""

OTHER = """
from pipeline_core import hookimpl
from pipeline_core.config.sections import Section, TrainOptions
from pipeline_core.model_info import ModelInfo

class Options(Section):
    depth: int = 2

class ShortTraining(TrainOptions):
    epochs: int = 1
    restarts: int = 0

@hookimpl
def model():
    return ModelInfo(
        name="other", summary="Another model", citation="none", options=Options,
        sections={"train": ShortTraining},
    )
"""
READS_MORE = """
class Reads(Section):
    beside: list[str] = []

    @property
    def datasets(self):
        return self.beside

@hookimpl
def model():
    return ModelInfo(
        name="reads_more", summary="Reads datasets beside that of the experiment", citation="none",
        options=Options, sections={"evaluate": Reads, "infer": Reads},
    )
"""
OWN_USE = """
@hookimpl
def infer(run):
    return {"wrote": str(run.inference)}
"""
OWN_GRAPH = """
@hookimpl
def graph(run):
    return {"wrote": str(run.graph)}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    sources = {
        "toy": write_model_source("toy"),
        "other": OTHER,
        "reads_more": OTHER.partition("class ShortTraining")[0] + READS_MORE,
        "owner": write_model_source("owner") + OWN_GRAPH,
        "uses": write_model_source("uses") + OWN_USE,
        "points": write_model_source("points").replace("summary=", "data_kind='point', summary="),
    }
    for name, source in sources.items():
        install(tmp_path, name, source, ending="of_runs")
    registry = load_registry([ATOMS, *find_points(tmp_path)])
    workflows = tmp_path / "workflows"
    (workflows / "datasets").mkdir(parents=True)
    (workflows / "datasets" / "water.yaml").write_text("description: d\nsources: [{path: a.xyz}]\n")
    (workflows / "experiments" / "toy").mkdir(parents=True)
    write(workflows, EXPERIMENT)
    return Project(workflows, tmp_path / "results", registry)


def write(workflows, text):
    (workflows / "experiments" / "toy" / "first.yaml").write_text(textwrap.dedent(text))


def test_variants_share_the_artifacts_that_they_do_not_change(project):
    runs = load_many(project).runs
    owners = {
        name: (run.graph.parent.name, run.partition.parent.name) for name, run in runs.items()
    }
    assert owners == {
        "base": ("base", "base"),
        "longer": ("base", "base"),
        "farther": ("farther", "farther"),
        "farther_and_longer": ("farther", "farther"),
        # The cost of a sample, and so its partition, depends on the model.
        "wider": ("base", "wider"),
        "rival": ("rival", "rival"),
        "longer_rival": ("rival", "rival"),
        "same": ("base", "base"),
        # The engine's graph follows from data and section alone; the forecast draws orders.
        "again": ("base", "again"),
        "and_again": ("base", "again"),
        "frozen": ("frozen", "frozen"),
        "alone": ("base", "base"),
    }
    datasets = project.results / "datasets"
    assert runs["frozen"].data == datasets / "ice" / "data.h5"
    del runs["frozen"]
    assert {run.data for run in runs.values()} == {datasets / "water" / "data.h5"}
    assert len({run.model for run in runs.values()}) == len(runs)


def load_many(project):
    """Load the experiment with variants of another plugin, seed, dataset and number of ranks."""
    ice = project.workflows / "datasets" / "ice.yaml"
    ice.write_text("description: frozen\nsources: [{path: b.xyz}]\n")
    more = {
        "rival": "plugin: other", "longer_rival": "plugin: other, seed: 7", "same": "plugin: toy",
        "again": "seed: 8", "and_again": "seed: 8", "frozen": "dataset: ice", "alone": "ranks: 1",
    }  # fmt: skip
    lines = [f"  {name}: {{{change}}}\n" for name, change in more.items()]
    write(project.workflows, EXPERIMENT.replace("seed: 7", "seed: 7\nranks: 2") + "".join(lines))
    return project.load_experiment("toy/first")


def test_seed_dataset_and_ranks_belong_to_a_variant(project):
    experiment = load_many(project)
    runs = experiment.runs
    assert [runs[name].seed for name in ("base", "again", "and_again")] == [7, 8, 8]
    assert runs["again"].make_provenance("train")["seed"] == 8
    assert [runs[name].ranks for name in ("base", "longer", "alone")] == [2, 2, 1]
    for stage in ("graph", "partition", "train", "evaluate", "infer", "figures"):
        assert runs["alone"].select_params(stage) == runs["base"].select_params(stage)
    assert [dataset.name for dataset in experiment.datasets] == ["water", "ice"]
    limits = " ".join(list_limits(experiment))
    assert "Other data, ice, and errors on other samples: frozen." in limits
    write(
        project.workflows,
        EXPERIMENT.replace("plugin: toy", "plugin: owner") + "  again: {seed: 8}\n",
    )
    runs = project.load_experiment("toy/first").runs  # of a plugin that makes its graph
    assert runs["again"].graph.parent == runs["again"].folder
    assert runs["longer"].graph.parent == runs["base"].folder


def test_a_stage_depends_on_its_own_section_and_on_the_model(project):
    base, longer = project.run("toy/first"), project.run("toy/first", "longer")
    for stage in ("graph", "partition", "evaluate", "infer", "figures"):
        assert base.select_params(stage) == longer.select_params(stage)
    assert base.select_params("train") != longer.select_params("train")
    wider = project.run("toy/first", "wider")
    assert base.select_params("graph") == wider.select_params("graph")
    for stage in ("partition", "train", "evaluate", "infer"):
        assert base.select_params(stage) != wider.select_params(stage)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("width: 4", "widht: 4", "5: model.widht: unknown key; did you mean 'width'?"),
        ("epochs: 3", "epochs: -1", "7: train.epochs: Input should be greater than or"),
        ("longer: {train", "longer: {trian", "9: variants.longer.trian: unknown key; did you mean"),
        ("longer: {", "longer: {scale: paper, ", "9: variants.longer.scale: unknown key; the keys"),
        ("longer: {", "longer: {plugin: othr, ", "9: variants.longer.plugin: no plugin 'othr' is"),
        (
            "wider: {model: {width: 8}}",
            "wider: {plugin: other, model: {width: 8}}",
            "12: variants.wider.model.width: unknown key; did you mean 'depth'? "
            "(as plugin 'other' of variant 'wider' reads it)",
        ),
        (
            "longer: {",
            "longer: {plugin: points, ",
            "9: variants.longer.plugin: 'points' takes samples of the kind 'point', but "
            "'toy', the plugin of the experiment, those of the kind 'structure'",
        ),
        ("longer: {", "longer: {ranks: 0, ", "9: variants.longer.ranks: Input should be greater"),
        ("longer: {", "longer: {dataset: watre, ", "9: variants.longer.dataset: "),
        ("  longer:", "  base:", "8: variants: 'base' is the experiment as it stands"),
        ("plugin: toy", "plugin: ty", "2: plugin: no plugin 'ty' is installed, only"),
        ("dataset: water", "dataset: watre", "3: dataset: "),
    ],
)
def test_a_mistake_is_named_with_key_line_and_cure(project, right, wrong, message):
    assert right in EXPERIMENT
    write(project.workflows, EXPERIMENT.replace(right, wrong))
    with pytest.raises(ValueError, match=re.escape(f"first.yaml:{message}")) as error:
        project.load_experiment("toy/first")
    told = "watre.yaml: no such file; did you mean"
    assert "watre" not in wrong or told in str(error.value)


def test_an_unknown_variant_is_answered_with_those_that_exist(project):
    with pytest.raises(ValueError, match="no variant 'short', only base, longer, farther"):
        project.run("toy/first", "short")
    write(project.workflows, EXPERIMENT.replace("dataset: water\n", ""))
    with pytest.raises(ValueError, match="names no dataset, which plugin 'toy' needs here"):
        _ = project.run("toy/first").data


def test_a_section_of_another_type_says_what_the_plugin_has_to_do(project):
    class Other(Section):
        """Options of another trainer."""

    message = r"implement the hook graph\(run\), or derive .* from Other"
    with pytest.raises(ValueError, match=message):
        project.run("toy/first").get_section("graph", Other)
    assert project.run("toy/first").get_section("graph", GraphOptions).cutoff == 5.0


def test_a_variant_of_another_plugin_starts_its_model_anew_and_keeps_the_rest(project):
    write(project.workflows, EXPERIMENT + "  rival: {plugin: other, train: {restarts: 2}}\n")
    experiment = project.load_experiment("toy/first")
    base, rival = experiment.runs["base"], experiment.runs["rival"]
    assert (base.model_info.name, rival.model_info.name) == ("toy", "other")
    assert rival.options.model_dump() == {"depth": 2}
    train = rival.get_section("train", TrainOptions)
    assert (type(train).__name__, train.restarts) == ("ShortTraining", 2)
    assert (train.epochs, train.optimizer.lr) == (3, 0.5)
    assert rival.get_section("graph", GraphOptions).cutoff == 5.0
    assert [info.name for info in experiment.models] == ["toy", "other"]
    assert list(experiment.select_plugin("other").runs) == ["rival"]
    assert experiment.select_plugin("other").model_info.name == "other"
    assert rival.make_provenance("train")["plugin"] == "other"
    assert rival.make_provenance("train")["fingerprint"] == project.registry.compute_fingerprint(
        "other"
    )


def test_stages_read_the_datasets_that_their_sections_name(project):
    text = """
        description: A test
        plugin: reads_more
        dataset: water
        evaluate: {beside: [ice, steam]}
        variants:
          cold: {evaluate: {beside: []}, infer: {beside: [ice]}}
    """
    write(project.workflows, text)
    with pytest.raises(ValueError, match=r"evaluate: .*ice\.yaml: no such file"):
        project.run("toy/first")
    source = (project.workflows / "datasets/water.yaml").read_text()
    for name in ("ice", "steam"):
        (project.workflows / f"datasets/{name}.yaml").write_text(source)
    run = project.run("toy/first")
    assert [one.name for one in run.datasets] == ["water", "ice", "steam"]
    config = {"experiments": [], "workflows": str(project.workflows), "results": "made"}
    plan = Plan(config, project.registry)
    for variant, stage, names in (
        ("base", "evaluate", ["water", "ice", "steam"]),
        ("base", "infer", ["water"]),
        ("base", "train", ["water"]),
        ("cold", "evaluate", ["water"]),
        ("cold", "infer", ["water", "ice"]),
    ):
        read = plan.inputs(stage)(SimpleNamespace(experiment="toy/first", variant=variant))
        data = [path for path in read if path.endswith("data.h5")]
        assert data == [f"made/datasets/{name}/data.h5" for name in names]


def test_a_use_that_asks_for_nothing_is_no_job(project):
    """What was computed when it asked for something is made new, lest figures show it."""
    text = """
        description: A test
        plugin: toy
        dataset: water
        variants:
          hot: {infer: {md: [{name: hot, steps: 10}]}}
          own: {plugin: uses, dataset: water}
    """
    write(project.workflows, text)
    runs = project.load_experiment("toy/first").runs
    assert {name: run.has_work("infer") for name, run in runs.items()} == {
        "base": False,
        "hot": True,
        "own": True,
    }
    config = {"experiments": [], "workflows": str(project.workflows), "results": "made"}
    read = Plan(config, project.registry).inputs("figures")(SimpleNamespace(experiment="toy/first"))
    drawn = [path.split("/")[-2] for path in read if path.endswith("inference.h5")]
    assert drawn == ["hot", "own"]
    assert "inference" not in runs["base"].list_inputs("figures")
    runs["base"].folder.mkdir(parents=True)
    runs["base"].inference.touch()
    assert runs["base"].has_work("infer")
    assert "inference" in runs["base"].list_inputs("figures")
