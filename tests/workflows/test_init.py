"""`pipeline-core init`, as a newcomer calls it: Snakemake finds all that it needs."""

import pytest

from pipeline_core.cli.working_folder import EXAMPLE
from processes import finish
from workflows.toy import plan_jobs

pytestmark = pytest.mark.slow

STAGES = ["data", "evaluate", "figures", "graph", "infer", "partition", "train"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("init") / "demo"
    said = finish(["-m", "pipeline_core.cli", "init", folder])
    assert f"next: cd {folder} && snakemake" in said
    return folder


@pytest.mark.parametrize("words", [[], ["--profile", "slurm"]])
def test_snakemake_finds_all_that_the_example_needs(folder, words):
    jobs = plan_jobs(folder, *words)
    assert sorted(jobs) == ["all", *STAGES]
    assert set(jobs.values()) == {1}


def test_the_example_is_valid(folder):
    place = ["--workflows", folder / "workflows", "--results", folder / "results"]
    assert "1 experiment" in finish(["-m", "pipeline_core.cli", "validate", EXAMPLE, *place])
