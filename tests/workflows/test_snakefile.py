"""The Snakefile itself: short, clean, light, and in agreement with the engine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pipeline_core.model_info import STAGES
from workflows.toy import REPOSITORY, environment, snakemake

RULE_FILES = sorted((REPOSITORY / "workflows/rules").glob("*.smk"))


def test_the_snakefile_is_short():
    assert len((REPOSITORY / "Snakefile").read_text().splitlines()) <= 40


def test_there_is_one_rule_a_stage_and_it_calls_the_command_of_its_name():
    assert {path.stem for path in RULE_FILES} == {*STAGES, "download", "papers"}
    for stage in STAGES:
        text = (REPOSITORY / f"workflows/rules/{stage}.smk").read_text()
        assert text.startswith(f"rule {stage}:")
        assert f"pipeline-core {stage} " in text
        assert "run:" not in text
        assert "lambda" not in text


def test_snakemake_finds_nothing_to_lint(fresh):
    assert "in a good condition" in snakemake(fresh, "--lint")


def test_the_rules_are_formatted():
    command = [sys.executable, "-m", "snakefmt", "--check", "-l", "100"]
    done = subprocess.run(
        [*command, "Snakefile", "workflows/rules"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "entry",
    [
        "from snakemake.cli import main; main(['-n', '--quiet', 'all'])",
        "from pipeline_core.cli import app; app(['--help'])",
        "from pipeline_core.cli import app; app(['plugins'])",
        "from pipeline_core.builtin import load_registry; load_registry()",
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
        cwd=fresh, env=environment(fresh), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
