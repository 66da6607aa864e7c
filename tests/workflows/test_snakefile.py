"""The Snakefile itself: short, clean, light, and in agreement with the engine."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline_core.model_info import STAGES
from pipeline_core.workflow.rules import Plan
from workflows.toy import REPOSITORY, make_environment, snakemake

RULE_FILES = sorted((REPOSITORY / "workflows/rules").glob("*.smk"))


def test_the_snakefile_is_short():
    assert len((REPOSITORY / "Snakefile").read_text().splitlines()) <= 40


def test_there_is_one_rule_a_stage_and_it_calls_the_command_of_its_name():
    others = {"download", "learn", "papers", "failures"}
    assert {path.stem for path in RULE_FILES} == {*STAGES, *others}
    for stage in STAGES:
        text = (REPOSITORY / f"workflows/rules/{stage}.smk").read_text()
        assert text.startswith(f"rule {stage}:")
        assert f"pipeline-core {stage} " in text
        assert "run:" not in text
        assert "lambda" not in text


def test_figures_wait_for_the_profiles_that_the_experiment_asks_for(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    plan, job = Plan({"experiments": []}), SimpleNamespace(experiment="mace/scaling")
    read = plan.inputs("figures")(job)
    profiles = [path for path in read if path.endswith("profile.json")]
    assert profiles == [
        f"results/mace/scaling/{v}/profile.json" for v in ("base", "baseline", "double")
    ]
    job.variant = "base"
    assert [Path(p).name for p in plan.inputs("profile")(job)] == [
        "data.h5",
        "graph.h5",
        "model.pt",
    ]
    text = plan.params("profile")(job)
    assert '"profile": {' in text
    assert '"train": {' in text


def test_snakemake_finds_nothing_to_lint(fresh):
    assert "in a good condition" in snakemake(fresh, "--lint")


@pytest.mark.slow
def test_the_rules_are_formatted():
    command = [sys.executable, "-m", "snakefmt", "--check", "-l", "100"]
    done = subprocess.run(
        [*command, "Snakefile", "workflows/rules"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [
        "from snakemake.cli import main; main(['-n', '--quiet', 'all'])",
        "from pipeline_core.cli import app; app(['--help'])",
        "from pipeline_core.cli import app; app(['plugins'])",
        "from pipeline_core.cli import app; app(['status'])",
        "from pipeline_core.stages.builtin import load_registry; load_registry()",
    ],
)
def test_nothing_heavy_is_imported_to_plan_the_work(fresh, entry):
    # A job on a cluster starts Snakemake twice before it starts to work.
    code = (
        "import sys\n"
        f"try:\n    {entry}\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'ase', 'pymatgen', 'matplotlib', 'h5py', 'numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=fresh, env=make_environment(fresh), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
