"""Stage commands: the hook of the run's plugin is called, its summary is printed once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake_packages import install, write_model_source
from pipeline_core.system import locks
from processes import finish, make_environment, start

STAGES = """
from pathlib import Path
from pipeline_core.project.run import ExperimentRun

def said(run, stage):
    device = getattr(run, "device", "-")
    return {"stage": stage, "device": device, "error": {"energy": 0.00123456789}, "none": None}

@hookimpl
def graph(run): return said(run, "graph")
@hookimpl
def train(run): return said(run, "train of " + run.variant)
@hookimpl
def draw(run): return {"drawn": [r.variant for r in run.runs.values()]}
"""


@pytest.fixture
def staged(folder):
    """A project whose plugin does some stages itself."""
    site = folder / "site"
    (site / "alpha_plugin.py").write_text(write_model_source("alpha") + STAGES)
    return folder


def test_a_stage_prints_its_summary_as_aligned_lines(staged, call):
    result = call("graph", "--experiment", "alpha/first")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "stage         graph",
        "device        auto",
        "error.energy  0.00123457",
        "none          none",
    ]
    assert "base, wide, longer" in call("figures", "--experiment", "alpha/first").output
    (staged / "workflows").rename(staged / "other")
    words = ["--variant", "wide", "--device", "cpu", "--workflows", staged / "other"]
    text = call("train", "--experiment", "alpha/first", *words).output
    assert "train of wide" in text
    assert "cpu" in text


@pytest.mark.usefixtures("second_rank")
def test_only_rank_0_speaks(staged, call):
    result = call("train", "--experiment", "alpha/first")
    assert result.exit_code == 0
    assert result.output == ""


def test_a_data_plugin_without_a_model_comes_before_the_engine(folder, call):
    source = """
        from pipeline_core import hookimpl
        @hookimpl
        def data(run):
            return {"made by": "beta"} if run.name == "water" else None
    """
    install(folder / "site", "beta", source)
    assert "beta" in call("data", "--dataset", "water").output


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_stage_succeeds_though_its_log_is_on_a_full_disk(staged, stream):
    words = [sys.executable, "-m", "pipeline_core.cli", "train", "--experiment", "alpha/first"]
    environment = make_environment(PYTHONPATH=os.pathsep.join([str(staged / "site"), *sys.path]))
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        log = {"stdout": full, "stderr": full if stream == "stderr" else subprocess.PIPE}
        done = subprocess.run(words, env=environment, check=False, text=True, **log)
    assert done.returncode == 0
    if stream == "stdout":
        assert "the summary cannot be written (No space left on device)" in done.stderr


@pytest.mark.mpi
def test_ranks_of_mpiexec_run_a_stage_together_and_speak_once(staged):
    command = ["-m", "pipeline_core.cli", "train", "--experiment", "alpha/first"]
    output = finish(command, 2, PYTHONPATH=str(staged / "site"))
    assert output.count("train of base") == 1


@pytest.mark.mpi
def test_several_ranks_are_refused_together(staged):
    command = ["-m", "pipeline_core.cli", "train", "--experiment", "alpha/first"]
    places = ["--workflows", staged / "workflows", "--results", staged / "results"]
    with locks.hold(staged / "results/alpha/first/base/.train.lock", "the stage 'train'"):
        done = start([*command, *places], 2, PYTHONPATH=str(staged / "site"))
    assert done.returncode != 0
    assert f"is under way by process {os.getpid()} on" in done.stdout + done.stderr


@pytest.mark.parametrize("stage", ["graph", "train"])
def test_a_second_call_of_a_stage_is_refused_before_it_writes(staged, call, stage):
    folder = staged / "results/alpha/first/base"
    with locks.hold(folder / f".{stage}.lock", stage):
        result = call(stage, "--experiment", "alpha/first")
        assert f"the stage '{stage}' is under way by process {os.getpid()} on" in result.output
        assert [path.name for path in folder.iterdir()] == [f".{stage}.lock"]
    assert call(stage, "--experiment", "alpha/first").exit_code == 0
