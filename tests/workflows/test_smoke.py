"""The experiment `smoke` of each plugin, from raw data to figures and a report.

Trainings have fewer epochs than their files ask for: what they learn is not what is tested.
"""

import pytest

from pipeline_core.artifacts import store
from pipeline_core.project.verification import inspect_experiment
from pipeline_core.report.collect import write_report
from pipeline_core.report.experiment import INDEX
from pipeline_core.testing.projects import call
from tiers import exhaustive, run_first
from trained_runs import PLUGINS, walk, write_smoke

MOST_BYTES = 1_000_000
"""Of an experiment in a report: that of the demo, which has five, is to be sent by mail."""

pytestmark = pytest.mark.slow


def check_figures(experiment, report):
    """All figures of the index are there, and the report shows them and stays small."""
    index = store.read_json(experiment.folder / INDEX)
    assert {"summary", "dataset"} < {entry["name"] for entry in index}
    files = [experiment.folder / name for entry in index for name in entry["files"]]
    assert all(path.stat().st_size > 0 for path in files)
    write_report(report, {experiment.experiment: experiment.folder})
    assert experiment.experiment in report.read_text()
    assert report.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("plugin", run_first(PLUGINS, "chgnet"))
def test_an_experiment_runs_to_its_figures(plugin, trained_runs, tmp_path):
    experiment = trained_runs.find(plugin).load_experiment(f"{plugin}/smoke")
    check_figures(experiment, tmp_path / "report.html")


@exhaustive
@pytest.mark.parametrize("plugin", PLUGINS)
def test_its_variants_run_beside_it(plugin, trained_runs, tmp_path):
    trained_runs.copy(plugin, tmp_path)
    experiment = write_smoke(tmp_path, plugin, variants=True)
    assert len(experiment.runs) > 1
    walk(experiment)
    check_figures(experiment, tmp_path / "report.html")


def test_results_that_were_moved_and_renamed_are_taken(trained_runs, tmp_path):
    project = trained_runs.copy("chgnet", tmp_path)
    for folder, ending in ((project.workflows / "experiments", ".yaml"), (project.results, "")):
        (folder / f"chgnet/smoke{ending}").rename(folder / f"chgnet/moved{ending}")
    call(project.run("chgnet/moved"), "evaluate")
    assert list(inspect_experiment(project.load_experiment("chgnet/moved"), {})) == []
