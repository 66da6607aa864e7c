"""The suite on an installed plugin: what it takes from where, and how it ends."""

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fake_packages import install, write_model_source
from forked_programs import start_programs
from pipeline_atoms.testing import PotentialConformance
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing import PluginConformance, RunConformance
from pipeline_core.testing.check import check_plugin, choose_settings, list_suites
from pipeline_core.testing.plugin import ConformanceTable, Row, format_table

WORKFLOWS = Path(__file__).parents[3] / "workflows"


@pytest.fixture(scope="module")
def project():
    """That of the repository, which has an experiment of the scale smoke of each plugin."""
    return Project(WORKFLOWS, Path("results"), load_registry())


@pytest.fixture
def empty(tmp_path, project):
    """A project without experiments."""
    return Project(tmp_path / "workflows", tmp_path / "results", project.registry)


def test_each_kind_of_model_has_its_classes(project):
    suites = {
        info.name: list_suites(project.registry, info) for info in project.registry.list_models()
    }
    assert suites["mace"] == [PluginConformance, PotentialConformance, RunConformance]
    assert suites["htfbr"] == [PluginConformance, RunConformance]


def test_options_of_a_potential_are_those_of_its_experiment_and_its_data_are_alloys(project):
    info = project.registry.get_model_info("chgnet")
    settings = choose_settings(project, info)
    assert settings.keys() == {"model", "graph", "train"}
    assert settings["model"] == project.run("chgnet/smoke").file.model
    assert choose_settings(project, info, "chgnet/hfo2")["train"]["epochs"] == 60


def test_data_of_a_plugin_are_those_of_its_experiment(project, empty):
    settings = choose_settings(project, project.registry.get_model_info("egnn_esp"))
    assert settings["dataset"]["plugin"] == "egnn_esp"
    (source,) = settings["dataset"]["sources"]
    assert source["path"] == str(WORKFLOWS / "datasets/hfo2/matrices/*.h5")
    info = project.registry.get_model_info("gauge_flows")
    assert choose_settings(project, info, "gauge_flows/depth")["dataset"] is None
    # Without experiments a potential has its defaults; data of its own have to be named.
    assert choose_settings(empty, empty.registry.get_model_info("mace")) == {}
    with pytest.raises(ValueError, match=r"takes data of its own; name .* --experiment htfbr/NAME"):
        choose_settings(empty, empty.registry.get_model_info("htfbr"))
    with pytest.raises(ValueError, match="'mace/smoke' is of the model 'mace'; name one of 'chg"):
        choose_settings(project, project.registry.get_model_info("chgnet"), "mace/smoke")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cgnet", "no plugin 'cgnet' is installed, only .*; did you mean 'chgnet'"),
        ("pipeline-core", "has 5 models, and 'mace/smoke' is of one"),
    ],
)
def test_a_name_has_to_be_that_of_one_plugin(project, name, message):
    with pytest.raises(ValueError, match=message):
        check_plugin(project, name, "mace/smoke")


def call(folder, *words):
    """Check a plugin of a folder of packages by the command; return its status and what it says."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    places = ["--workflows", folder / "workflows"]
    done = subprocess.run(
        [start_programs() / "pipeline-core", "plugins", "--check", *words, *places],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_check_that_fails_is_told_and_is_the_status(tmp_path):
    source = write_model_source("alpha").replace("summary=", "without=('partition',), summary=")
    install(tmp_path, "alpha", source + "@hookimpl\ndef train(run):\n    return {}\n")
    status, text = call(tmp_path, "alpha")
    assert status == 1
    row = re.search(r"^alpha: Plugin +(\d+) +(\d+) +0 ", text, re.MULTILINE)
    assert int(row[2]) == 2
    assert "failed: alpha: Plugin: each stage has an implementation: AssertionError" in text
    assert "failed: alpha: Plugin: options are documented: AssertionError: Options has no" in text
    assert "failed: alpha: Run: training writes a model" in text


@pytest.mark.slow
def test_what_cannot_be_checked_is_an_error(tmp_path):
    install(tmp_path, "broken", "raise RuntimeError('boom')")
    install(tmp_path, "reader", "from pipeline_core import hookimpl\n")
    assert "'broken' of broken cannot be loaded: RuntimeError: boom" in call(tmp_path, "broken")[1]
    status, text = call(tmp_path, "reader")
    assert status == 1
    assert "'reader' has no model" in text


def test_what_is_skipped_is_told_with_its_reason_and_nothing_without_the_suite():
    row = Row(reasons=Counter({"for a reason": 1}))
    assert "skipped: alpha: Run: 1 checks: for a reason" in format_table({"alpha: Run": row})
    printed = []
    ConformanceTable().pytest_terminal_summary(printed)
    assert printed == []
