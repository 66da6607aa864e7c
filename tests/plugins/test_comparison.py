"""Models of several plugins in one experiment: the same samples and labels, one report.

The oracle is the data stage: labels and splits are those that it wrote, whatever the model.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.config.experiments import BASE
from pipeline_core.figures import results
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import EXPERIMENT, call, write_project

pytestmark = pytest.mark.slow

WORKFLOWS = Path(__file__).parents[2] / "workflows"
STAGES = ("graph", "partition", "train", "evaluate")
SECTIONS = {
    "model": {"channels": 2, "max_l": 0, "lmax": 1, "correlation": 1},
    "graph": {"cutoff": 3.5},
    "train": {"epochs": 1},
    "figures": {"names": ["parity"], "formats": ["png"]},
    "variants": {
        "chgnet": {
            "plugin": "chgnet",
            "model": {
                "atom_features": 4,
                "bond_features": 4,
                "angle_features": 4,
                "hidden_features": 4,
                "readout_features": [4],
                "radial_functions": 3,
                "angular_functions": 3,
            },
            "graph": {"angle_cutoff": 3.0},
        },
        "again": {"seed": 1},
    },
}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """An experiment with variants of two plugins and two seeds, drawn."""
    project = write_project(tmp_path_factory.mktemp("comparison"), "mace", SECTIONS)
    result = project.load_experiment(f"mace/{EXPERIMENT}")
    call(result.runs[BASE], "data")
    for run in result.runs.values():
        for stage in STAGES:
            if stage != "graph" or run.graph.parent == run.folder:
                call(run, stage)
    project.registry.select_hook("draw", result.model_info.name)(run=result)
    return result


@pytest.mark.slow
def test_all_models_are_compared_with_the_same_labels(experiment):
    with SampleFile(experiment.runs[BASE].data, "data") as file:
        energies = file.read_column("energy")[file.read_column("split") == 2]
    for run in experiment.runs.values():
        with SampleFile(run.predictions, "predictions") as file:
            labels = file.read_column("energy_label")[file.read_column("split") == 2]
        np.testing.assert_allclose(np.sort(labels), np.sort(energies), rtol=1e-12)
    reports = [
        results.read_metrics(run).splits["test"].quantities for run in experiment.runs.values()
    ]
    assert len({report["forces"].label_mean_absolute for report in reports}) == 1
    assert len({report["forces"].mae for report in reports}) == 3


def test_a_seed_shares_the_graph_and_another_plugin_does_not(experiment):
    folders = {name: run.graph.parent.name for name, run in experiment.runs.items()}
    assert folders == {"base": "base", "chgnet": "chgnet", "again": "base"}


def test_the_report_holds_all_models(experiment):
    with (experiment.folder / "parity.csv").open() as file:
        assert {row["variant"] for row in csv.DictReader(file)} == set(experiment.runs)
    page = (experiment.folder / "summary.html").read_text()
    for run in experiment.runs.values():
        n_parameters = json.loads(run.metrics.read_text())["n_parameters"]
        assert f"<td>{run.model_info.name}, {n_parameters:,} parameters</td>" in page


def test_the_comparison_on_hafnium_oxide_takes_each_model_at_its_own_settings():
    project = Project(WORKFLOWS, Path("results"), load_registry())
    rival, alone = project.run("mace/hfo2", "chgnet"), project.run("chgnet/hfo2")
    assert [run.label for run in project.load_experiment("mace/hfo2").runs.values()] == [
        "mace",
        "chgnet",
    ]
    for section in ("model", "graph", "partition", "train", "evaluate"):
        assert rival.sections[section] == alone.sections[section]
    assert rival.data == alone.data == project.run("mace/hfo2").data
    assert rival.sections["infer"].md == alone.sections["infer"].md[:1]
