"""Profiles: what each may say, and that the literal commands work from a clone."""

from __future__ import annotations

import re

import pytest
import yte

from workflows.toy import REPOSITORY, planned, snakemake

PROFILES = sorted(path.parent.name for path in REPOSITORY.glob("profiles/*/profile.yaml"))
NEUTRAL = {"printshellcmds", "rerun-incomplete", "show-failed-logs"}
RULES = {path.stem for path in (REPOSITORY / "workflows/rules").glob("*.smk")}


@pytest.fixture
def profile(monkeypatch):
    """Reads a profile in an environment, as Snakemake does."""

    def read(name, argv=("snakemake",), **variables):
        for key, value in variables.items():
            monkeypatch.setenv(key, value)
        monkeypatch.setattr("sys.argv", list(argv))
        with (REPOSITORY / "profiles" / name / "profile.yaml").open() as file:
            return yte.process_yaml(file, require_use_yte=True)

    return read


def test_the_slurm_profile_is_found_by_its_bare_name():
    link = REPOSITORY / "slurm"
    assert link.is_symlink()
    assert link.readlink().as_posix() == "profiles/slurm"


def test_the_default_profile_is_neutral_under_any_other(profile):
    # Snakemake loads it on every call, and its keys win over those of the profile asked for.
    for words in (["--profile", "slurm"], ["--profile=slurm"], ["--cores", "2"], ["-c2"], ["-j4"]):
        assert set(profile("default", ["snakemake", *words])) == NEUTRAL
    assert set(profile("default", SNAKEMAKE_PROFILE="slurm")) == NEUTRAL


def test_without_any_other_the_default_profile_means_all_cores(profile):
    assert profile("default")["cores"] == "all"
    assert profile("default", ["snakemake", "-n", "paper_toy"])["cores"] == "all"


@pytest.mark.parametrize("name", PROFILES)
def test_every_rule_that_a_profile_names_exists(profile, name):
    for variables in ({}, {"PIPELINE_GPUS": "4", "PIPELINE_PARTITION": "gpu"}):
        content = profile(name, **variables)
        named = {*content.get("set-resources", {}), *content.get("set-threads", {})}
        assert named <= RULES


@pytest.mark.parametrize(
    "words", [[], ["--profile", "slurm"], ["--profile", "profiles/local"], ["--cores", "1"]]
)
def test_every_profile_plans_the_same_jobs_in_an_empty_home(fresh, words):
    assert planned(fresh, *words) == {
        "data": 1, "graph": 2, "partition": 2, "train": 4, "evaluate": 4, "infer": 4, "figures": 2,
        "all": 1,
    }  # fmt: skip


def test_the_slurm_profile_sends_training_to_gpus_of_several_nodes(profile):
    content = profile(
        "slurm",
        PIPELINE_PARTITION="cpu",
        PIPELINE_GPU_PARTITION="gpu",
        PIPELINE_ACCOUNT="me",
        PIPELINE_NODES="2",
        PIPELINE_GPUS="4",
    )
    assert content["default-resources"]["slurm_partition"] == "cpu"
    assert content["default-resources"]["slurm_account"] == "me"
    train = content["set-resources"]["train"]
    assert train["slurm_partition"] == "gpu"
    assert (train["nodes"], train["tasks_per_node"], train["gres"]) == (2, 4, "gpu:4")
    assert re.match(r"srun --nodes=2 --ntasks-per-node=4\b", train["mpi"])


def test_one_rank_needs_no_launcher(profile):
    assert "mpi" not in profile("slurm")["set-resources"]["train"]
    assert "mpi" not in profile("local", PIPELINE_RANKS="1")["set-resources"]["train"]


def test_without_gpus_the_slurm_profile_asks_for_none(profile):
    content = profile("slurm", PIPELINE_GPUS="0", PIPELINE_RANKS="2")
    assert "gres" not in content["set-resources"]["train"]
    assert content["set-resources"]["train"]["tasks_per_node"] == 2
    assert content["set-resources"]["evaluate"] == {}


@pytest.mark.slow
def test_the_local_profile_trains_on_several_ranks(fresh):
    snakemake(fresh, "--profile", "profiles/local", "paper_toy", PIPELINE_RANKS="2")
    state = fresh / "results/toy/first/base/state"
    assert {p.read_text() for p in state.glob("rank-*")} == {"0 of 2 on here", "1 of 2 on here"}
