"""Profiles: what each may say, and that the literal commands work from a clone."""

import re
import subprocess
from dataclasses import fields
from types import SimpleNamespace

import pytest
import yaml
import yte
from snakemake_executor_plugin_slurm import ExecutorSettings
from snakemake_executor_plugin_slurm.submit_string import get_submit_command

from pipeline_core.workflow.rules import Plan
from tiers import exhaustive, run_first
from workflows.toy import REPOSITORY, plan_jobs, snakemake

PROFILES = sorted(path.parent.name for path in REPOSITORY.glob("profiles/*/profile.yaml"))
NEUTRAL = {"keep-going", "printshellcmds", "rerun-incomplete", "show-failed-logs"}
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("home", "cache", "kept"),
    [
        pytest.param("home", "", "../home/.cache/snakemake", marks=exhaustive),
        ("home", "cache", "../cache/snakemake"),
        # As in a container that is read only.
        ("/dev/null", "", ".snakemake/cache/snakemake"),
        pytest.param("relative", "relative", ".snakemake/cache/snakemake", marks=exhaustive),
        pytest.param("home", "/dev/null", ".snakemake/cache/snakemake", marks=exhaustive),
    ],
)
def test_snakemake_works_without_a_home(fresh, home, cache, kept):
    def name(folder):
        return folder if folder in ("", "/dev/null", "relative") else str(fresh.parent / folder)

    model = "results/toy/first/base/graph.h5"
    snakemake(fresh, model, HOME=name(home), XDG_CACHE_HOME=name(cache))
    assert (fresh / model).exists()
    assert (fresh / kept).is_dir()
    assert not (fresh / "relative").exists()


@pytest.mark.parametrize("name", PROFILES)
def test_every_rule_that_a_profile_names_exists(profile, name):
    for variables in ({}, {"PIPELINE_GPUS": "4", "PIPELINE_PARTITION": "gpu"}):
        content = profile(name, **variables)
        named = {*content.get("set-resources", {}), *content.get("set-threads", {})}
        assert named <= RULES


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    run_first(
        [[], ["--profile", "slurm"], ["--profile", "profiles/local"], ["--cores", "1"]],
        ["--profile", "slurm"],
    ),
)
def test_every_profile_plans_the_same_jobs_in_an_empty_home(fresh, words):
    assert plan_jobs(fresh, *words) == {
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
    assert re.match(r"srun --nodes=2 --ntasks-per-node=4\b", train["launcher"])


@pytest.mark.parametrize(
    ("name", "variable", "word"),
    [
        *[("local", "PIPELINE_RANKS", word) for word in ("two", "0", "-2", "1.5")],
        ("slurm", "PIPELINE_RANKS", "0"),
        ("slurm", "PIPELINE_NODES", "zero"),
        ("slurm", "PIPELINE_GPUS", "-1"),
        ("slurm", "PIPELINE_THREADS", "8 "),
    ],
)
def test_a_number_that_is_none_is_named_with_its_variable(profile, name, variable, word):
    with pytest.raises(SystemExit, match=rf"error, {variable}={word} is no whole number from \d"):
        profile(name, **{variable: word})


@pytest.mark.parametrize("name", ["local", "slurm"])
def test_an_empty_variable_is_none(profile, name):
    assert profile(name, PIPELINE_RANKS="") == profile(name)


def test_one_rank_needs_no_launcher(profile):
    assert "mpi" not in profile("slurm", PIPELINE_GPUS="1")["set-resources"]["train"]
    assert "ranks" not in profile("local", PIPELINE_RANKS="1")["set-resources"]["train"]


def test_without_gpus_the_slurm_profile_asks_for_none(profile):
    content = profile("slurm", PIPELINE_GPUS="0", PIPELINE_RANKS="2")
    assert "gres" not in content["set-resources"]["train"]
    assert content["set-resources"]["train"]["tasks_per_node"] == 2
    assert "evaluate" not in content["set-resources"]


def find_launch(folder, variant, *words, **variables):
    """Return what stands before the training of a variant, its ranks and its resources."""
    model = f"results/toy/first/{variant}/model.pt"
    text = snakemake(folder, "-n", *words, model, **variables).split("rule train:")[1]
    command = re.search(r"Shell command: (.*)pipeline-core train .*--ranks (\d+)", text)
    return command[1].strip(), int(command[2]), re.search("resources: (.*)", text)[1]


@pytest.fixture
def ranked(fresh):
    """A project with a variant that is trained on two ranks."""
    path = fresh / "workflows/experiments/toy/first.yaml"
    path.write_text(path.read_text() + "  pair: {ranks: 2}\n")
    return fresh


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--cores", "1"], ["--profile", "profiles/local"]])
def test_a_variant_says_on_how_many_ranks_it_is_trained(ranked, words):
    assert find_launch(ranked, "pair", *words, PIPELINE_RANKS="1")[:2] == ("", 2)
    assert find_launch(ranked, "longer", *words, PIPELINE_RANKS="1")[:2] == ("", 1)


@pytest.mark.slow
def test_the_ranks_of_a_profile_win_over_those_of_a_variant(ranked):
    words = ["--profile", "profiles/local"]
    assert find_launch(ranked, "pair", *words, PIPELINE_RANKS="3")[1] == 3
    command, _, resources = find_launch(ranked, "pair", "--profile", "slurm", PIPELINE_NODES="4")
    assert command.startswith("srun --nodes=4 --ntasks-per-node=1 ")
    assert "tasks=4" in resources


@pytest.fixture
def plan_edited(ranked, monkeypatch):
    """Makes the plan of the project whose experiment is edited first."""

    def make(right="", wrong=""):
        path = ranked / "workflows/experiments/toy/first.yaml"
        text = path.read_text()
        assert right in text
        path.write_text(text.replace(right, wrong, 1))
        monkeypatch.chdir(ranked)
        monkeypatch.syspath_prepend(ranked / "site")
        return Plan({"experiments": []})

    return make


@pytest.mark.parametrize(
    ("right", "wrong", "ranks", "cores"),
    [
        ("", "", 2, [8, 4, 4]),
        ("ranks: 2", "ranks: 16", 16, [16, 4, 4]),  # a core a rank at least
        ("", "scale: smoke\n", 2, [2, 1, 1]),
        ("", "threads: 3\n", 2, [3, 3, 3]),
    ],
)
def test_cores_and_ranks_of_a_job(plan_edited, right, wrong, ranks, cores):
    plan = plan_edited(right, wrong)
    job = SimpleNamespace(experiment="toy/first", variant="pair")
    assert [plan.threads(stage)(job) for stage in ("train", "evaluate", "infer")] == cores
    assert plan.ranks("train")(job) == ranks


def evaluate_limit(content, attempt):
    """Evaluate the time limit of a training as Snakemake does, see its `cli_evaluator`."""
    job = SimpleNamespace(experiment="toy/first", variant="pair")
    expression = content["set-resources"]["train"]["runtime"]
    return eval(expression, {"wildcards": job, "attempt": attempt})  # noqa: S307 - of our own file


@pytest.mark.parametrize(("train", "minutes"), [("", [10, 40]), ("minutes: 30, ", [48, 48])])
def test_the_time_limit_of_a_training_follows_its_budget(plan_edited, profile, train, minutes):
    """A tenth more, and a quarter of an hour."""
    plan_edited("train: {", f"train: {{{train}")
    assert [evaluate_limit(profile("slurm"), attempt) for attempt in (1, 3)] == minutes
    alone = profile("slurm", PIPELINE_RANKS="2")
    assert evaluate_limit(alone, 1) == (48 if train else 720)
    hours = profile("slurm", PIPELINE_HOURS="48")
    assert hours["set-resources"]["train"]["runtime"] == "48h"


def test_jobs_come_back_after_preemption_or_the_failure_of_a_node(profile):
    """Slurm then starts them again, as the executor tells sbatch, and trainings resume."""
    content = profile("slurm")
    assert content["slurm-requeue"] is True
    settings = {field.name.replace("_", "-") for field in fields(ExecutorSettings)}
    assert {name for name in content if name.startswith("slurm-")} <= {
        f"slurm-{name}" for name in settings
    }


def make_submission(content):
    """Return the executor's own call of sbatch for a training; it refuses what cannot be."""
    words = {**content["default-resources"], **content.get("set-resources", {}).get("train", {})}
    resources = SimpleNamespace(**words, get=lambda key, default=None: words.get(key, default))
    keys = ("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir")
    job = SimpleNamespace(resources=resources, threads=8)
    return " ".join(get_submit_command(job, dict.fromkeys(keys, "")).split())


@pytest.mark.parametrize(
    ("variables", "call"),
    [
        ({}, "--ntasks=1 --cpus-per-task=8"),
        ({"PIPELINE_RANKS": "4"}, "--nodes=1 --ntasks-per-node=4 --cpus-per-task=8"),
        ({"PIPELINE_NODES": "4"}, "--nodes=4 --ntasks=4 --cpus-per-task=8"),
    ],
)
def test_sbatch_makes_room_for_the_ranks(profile, variables, call):
    assert call in make_submission(profile("slurm", **variables))


def test_small_steps_are_one_group_and_long_trainings_stand_alone(profile):
    assert set(profile("slurm")["groups"].values()) == {"steps"}
    for variables in ({"PIPELINE_GPU_PARTITION": "g"}, {"PIPELINE_HOURS": "48"}):
        assert "train" not in profile("slurm", **variables)["groups"]


def format_call(command):
    """Return the words that a shell makes of a command, as `cluster-generic` formats it."""
    call = command.format(threads=8, resources=SimpleNamespace(mem_mb=8000, runtime=170))
    words = subprocess.check_output(["bash", "-c", f"printf '%s\\n' {call}"], text=True)
    return words.splitlines()


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        # bsub(1): -n slots, -R resources, -W minutes.
        ("LSF", ["bsub", "-n", "8", "-R", "rusage[mem=8000]", "-W", "170"]),
        # qsub(1) of Grid Engine: -pe environment slots, h_rt in seconds.
        ("SGE", ["qsub", "-V", "-cwd", "-pe", "smp", "8", "-l", "h_rt=10200"]),
    ],
)
def test_the_commands_of_other_schedulers_are_what_their_manuals_say(scheduler, words):
    page = (REPOSITORY / "docs/how_to/clusters.md").read_text()
    sentence = page.split("For LSF the command is")[1].split("The rest is as above")[0]
    commands = dict(zip(("LSF", "SGE"), re.findall(r"`([^`]+)`", sentence), strict=True))
    assert format_call(commands[scheduler]) == words


@pytest.mark.slow
def test_the_recipe_for_other_schedulers_plans_all_and_submits_what_qsub_reads(fresh):
    # Its executor is no dependency: what it would call is formatted here, as it does.
    page = (REPOSITORY / "docs/how_to/clusters.md").read_text()
    text = page.split("profiles/pbs/profile.yaml`:")[1]
    lines = [line.strip() for line in text.split("\n\n")[1].splitlines()]
    content = yaml.safe_load("\n".join(lines))
    assert set(content["groups"]) < RULES
    words = format_call(content["cluster-generic-submit-cmd"])
    assert words[0] == "qsub"
    assert words[-1] == "walltime=10200"
    kept = [line for line in lines if not line.startswith(("executor", "cluster-generic"))]
    (fresh / "pbs").mkdir()
    (fresh / "pbs/profile.yaml").write_text("\n".join(kept))
    assert plan_jobs(fresh, "--profile", "pbs")["train"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "variant", "ranks"),
    [
        (["--profile", "profiles/local"], "longer", "2"),
        pytest.param(["--cores", "2"], "pair", "1", marks=exhaustive),
    ],
)
def test_ranks_of_a_profile_or_of_a_variant_train_together(ranked, words, variant, ranks):
    folder = f"results/toy/first/{variant}"
    snakemake(ranked, *words, f"{folder}/model.pt", PIPELINE_RANKS=ranks)
    notes = {path.read_text() for path in (ranked / folder / "state").glob("rank-*")}
    assert notes == {"0 of 2 on here", "1 of 2 on here"}
