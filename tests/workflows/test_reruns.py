"""What runs, and what runs again after a change.

The oracle is Snakemake's own dry-run on the repository's rules, with plugins whose stages take no
time.
"""

import os
import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from pipeline_core.cli.validate import ARTIFACTS
from tiers import exhaustive
from workflows.toy import REPOSITORY, plan_jobs, snakemake


def edit(path, right, wrong):
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))


def find_experiment(folder, plugin="toy"):
    return folder / "workflows" / "experiments" / plugin / "first.yaml"


def test_plain_snakemake_computes_the_configured_experiments_on_all_cores(finished):
    results = finished / "results"
    for plugin in ("toy", "other"):
        for variant in ("base", "longer"):
            folder = results / plugin / "first" / variant
            made = {path.name for path in folder.iterdir()} - {"logs", "state", "records.jsonl"}
            shared = {"graph.h5", "partition.h5"} if variant == "base" else set()
            assert made == shared | {
                "model.pt", "history.jsonl", "metrics.json", "predictions.h5", "inference.h5"
            }  # fmt: skip
        assert (results / plugin / "first" / "figures" / "reproduction.json").exists()
    assert (results / "datasets" / "water" / "data.h5").exists()


def test_a_second_run_has_nothing_to_do(finished):
    assert plan_jobs(finished) == {}


EXPERIMENT, DATASET = "workflows/experiments/toy/first.yaml", "workflows/datasets/water.yaml"
USE = {"evaluate": 1, "infer": 1, "figures": 1, "all": 1}
ONE = {"graph": 1, "partition": 1, "train": 1, **USE}
BOTH = {"graph": 1, "partition": 1, "train": 2, "evaluate": 2, "infer": 2, "figures": 1, "all": 1}
EVERYTHING = {"data": 1, **{name: 2 * n for name, n in BOTH.items()}, "all": 1}
AT_END = ""
CHANGES = {
    "more epochs leave graphs alone": (EXPERIMENT, "epochs: 3", "epochs: 4", {"train": 1, **USE}),
    "another seed": (EXPERIMENT, "plugin: toy", "plugin: toy\nseed: 3", BOTH),
    "a comment": (EXPERIMENT, "description: A toy", "# comment\ndescription: The toy", {}),
    "a description of data": (DATASET, "description: d", "description: other", {}),
    "other figures": (EXPERIMENT, AT_END, "figures: {names: [parity]}", {"figures": 1, "all": 1}),
    "a reader of other files": ("site/toyreader_plugin.py", "A toy", "An edited toy", {}),
    "other raw data": ("workflows/datasets/raw.xyz", "raw", "other raw data", EVERYTHING),
    "another split": (DATASET, AT_END, "split: {seed: 5}", EVERYTHING),
    "ranks": (EXPERIMENT, "plugin: toy", "plugin: toy\nranks: 2", {}),
    "a new variant": (
        EXPERIMENT,
        AT_END,
        "  wide: {model: {width: 9}}",
        {"partition": 1, "train": 1, **USE},
    ),
    "a variant of another seed": (EXPERIMENT, AT_END, "  again: {seed: 1}", ONE),
}
"""The file that is edited, what is replaced by what, and the jobs that run again."""


@pytest.mark.parametrize("change", CHANGES)
def test_an_edit_redoes_what_depends_on_it(finished, change):
    name, right, wrong, jobs = CHANGES[change]
    path = finished / name
    if right == AT_END:
        path.write_text(f"{path.read_text()}{wrong}\n")
    else:
        edit(path, right, wrong)
    assert plan_jobs(finished) == jobs


@pytest.mark.slow
def test_another_structure_to_start_from_is_used_again(finished):
    path, start = find_experiment(finished), finished / "start.xyz"
    path.write_text(path.read_text() + "infer: {md: [{name: hot, start: start.xyz}]}\n")
    start.write_text("a structure")
    assert plan_jobs(finished) == {"infer": 2, "figures": 1, "all": 1}
    snakemake(finished)
    assert plan_jobs(finished) == {}
    start.write_text("another structure")
    assert plan_jobs(finished) == {"infer": 2, "figures": 1, "all": 1}


def test_an_edit_of_a_plugin_redoes_its_runs_and_no_others(finished):
    edit(finished / "site/toy_plugin.py", "A toy", "An edited toy")
    text = snakemake(finished, "-n")
    outputs = [line for line in text.splitlines() if line.strip().startswith("output:")]
    assert len(outputs) == 9
    assert all("results/toy/first" in line for line in outputs)
    assert "Params have changed" in text


@pytest.mark.slow
def test_an_edit_of_a_reader_imports_again_what_it_reads(fresh):
    datasets = fresh / "workflows/datasets"
    (datasets / "raw.xyz").rename(datasets / "raw.raw")
    edit(datasets / "water.yaml", "raw.xyz", "raw.raw")
    snakemake(fresh, "results/datasets/water/data.h5")
    assert plan_jobs(fresh, "results/datasets/water/data.h5") == {}
    edit(fresh / "site/toyreader_plugin.py", "A toy", "An edited toy")
    assert plan_jobs(fresh, "results/datasets/water/data.h5") == {"data": 1}


@pytest.mark.slow
def test_a_reader_that_a_dataset_names_is_known_with_its_whole_distribution(fresh):
    """The ending of the file says nothing of the format, and the reader has a library."""
    site, target = fresh / "site", "results/datasets/water/data.h5"
    library = site / "toylibrary.py"
    library.write_text("scale = 1.0\n")
    (site / "toyreader-1.0.dist-info/top_level.txt").write_text("toyreader_plugin\ntoylibrary\n")
    edit(fresh / "workflows/datasets/water.yaml", "raw.xyz", "raw.xyz, reader: raw")
    snakemake(fresh, target)
    assert plan_jobs(fresh, target) == {}
    library.write_text("scale = 2.0\n")
    assert plan_jobs(fresh, target) == {"data": 1}
    snakemake(fresh, target)
    edit(site / "toyreader-1.0.dist-info/METADATA", "Version: 1.0", "Version: 1.1")
    assert plan_jobs(fresh, target) == {"data": 1}


@exhaustive
def test_figures_that_fail_stop_no_other_experiment(finished):
    path = find_experiment(finished)
    path.write_text(path.read_text() + "figures: {names: [groups]}\n")
    # Its figures are the last of a chain: without `keep-going` nothing would be left of it by then.
    edit(find_experiment(finished, "other"), "epochs: 3", "epochs: 4")
    text = snakemake(finished, "--cores", "1", ok=False)
    assert "KeyError" in text
    assert plan_jobs(finished, "results/other/first/figures") == {}
    assert plan_jobs(finished)["figures"] == 1


@pytest.mark.slow
def test_a_touched_file_whose_bytes_are_the_same_changes_nothing(finished):
    (finished / "site/toy_plugin.py").touch()
    find_experiment(finished).touch()
    (finished / "workflows/datasets/raw.xyz").touch()
    assert plan_jobs(finished) == {}


@pytest.mark.slow
def test_raw_data_that_are_replaced_with_their_time_kept_redo_everything(finished):
    """As `cp -p` and `rsync -t` do, and then with a time before that of all results."""
    path = finished / "workflows/datasets/raw.xyz"
    content, before = path.read_text(), path.stat()
    path.write_text(content[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.read_text() != content
    assert plan_jobs(finished)["data"] == 1
    assert plan_jobs(finished)["train"] == 4
    path.write_text(content)
    os.utime(path, (1e9, 1e9))
    assert plan_jobs(finished) == {}
    other = path.with_name("other.xyz")
    other.write_text(content[::-1])
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert plan_jobs(finished)["train"] == 4
    snakemake(finished, "results/datasets/water/data.h5")
    assert plan_jobs(finished, "results/datasets/water/data.h5") == {}


@pytest.mark.slow
def test_another_profile_or_launcher_changes_nothing(finished):
    assert plan_jobs(finished, "--profile", "slurm") == {}
    assert plan_jobs(finished, "--profile", "slurm", PIPELINE_NODES="4", PIPELINE_RANKS="8") == {}
    assert plan_jobs(finished, "--profile", "profiles/local", PIPELINE_RANKS="2") == {}
    assert plan_jobs(finished, "--set-resources", "train:device=cuda") == {}


@pytest.mark.slow
def test_a_variant_of_another_plugin_depends_on_that_plugin(finished):
    path = find_experiment(finished)
    path.write_text(path.read_text() + "  rival: {plugin: other, model: {width: 4}}\n")
    assert plan_jobs(finished) == ONE
    snakemake(finished, "results/toy/first/figures")
    assert plan_jobs(finished) == {}
    edit(finished / "site/other_plugin.py", "A toy", "An edited toy")
    assert plan_jobs(finished, "results/toy/first/figures") == {
        k: ONE[k] for k in ONE if k != "all"
    }


@pytest.mark.slow
def test_the_target_of_a_paper_takes_the_experiments_of_the_chosen_scale(fresh):
    text = find_experiment(fresh).read_text()
    (fresh / "workflows/experiments/toy/small.yaml").write_text(text + "scale: smoke\n")
    (fresh / "workflows/experiments/toy/expected.yaml").write_text("table: {}\n")
    assert "results/toy/small" not in snakemake(fresh, "-n", "paper_toy")
    text = snakemake(fresh, "-n", "paper_toy", "--config", "scale=smoke")
    assert "results/toy/small/figures" in text
    assert "results/toy/first" not in text
    text = snakemake(fresh, "-n", "paper_other", "--config", "scale=paper", ok=False)
    assert "no experiment has the scale 'paper', only laptop" in text


@pytest.mark.slow
def test_the_target_of_a_paper_leaves_out_what_has_no_raw_files(fresh):
    folder = fresh / "workflows"
    dataset = (folder / "datasets/water.yaml").read_text()
    (folder / "datasets/rare.yaml").write_text(dataset.replace("raw.xyz", "rare.xyz"))
    text = find_experiment(fresh).read_text()
    (folder / "experiments/toy/rare.yaml").write_text(text.replace("water", "rare"))
    text = snakemake(fresh, "-n", "paper_toy")
    assert "paper_toy leaves out toy/rare: " in text
    assert "rare.yaml:2: sources.0.path: no file matches 'rare.xyz'" in text
    assert "results/toy/first/figures" in text
    assert "results/toy/rare/figures" not in text
    (folder / "datasets/raw.xyz").rename(folder / "datasets/rare.xyz")
    text = snakemake(fresh, "-n", "paper_toy")
    assert "results/toy/rare/figures" in text
    assert "results/toy/first/figures" not in text
    (folder / "datasets/rare.xyz").unlink()
    assert "no file matches 'rare.xyz'" in snakemake(fresh, "-n", "paper_toy", ok=False)


@pytest.mark.slow
def test_experiments_and_folders_can_be_chosen_on_the_command_line(fresh):
    words = ["--config", "experiments=other/first", "results=elsewhere"]
    text = snakemake(fresh, "-n", *words)
    assert "elsewhere/other/first/figures" in text
    assert "toy/first" not in text
    snakemake(fresh, *words)
    assert (fresh / "elsewhere/other/first/figures/reproduction.json").exists()
    assert not (fresh / "results").exists()
    both = plan_jobs(fresh, "--config", "experiments=toy/first,other/first")
    assert both == plan_jobs(fresh, "--config", "experiments=[toy/first,other/first]")


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["other/first", "other/first,other/second", "['other/first']"])
def test_experiments_are_a_word_words_between_commas_or_a_list(fresh, chosen):
    text = find_experiment(fresh, "other").read_text()
    find_experiment(fresh, "other").with_name("second.yaml").write_text(text)
    shown = snakemake(fresh, "-n", "--config", f"experiments={chosen}")
    assert "results/other/first/figures" in shown
    assert ("results/other/second/figures" in shown) == ("second" in chosen)
    assert "results/toy/first" not in shown


@pytest.mark.slow
def test_a_broken_plugin_fails_only_the_runs_that_ask_for_it(fresh):
    (fresh / "site/toy_plugin.py").write_text("raise RuntimeError('boom')")
    assert plan_jobs(fresh, "paper_other")["train"] == 2
    text = snakemake(fresh, "-n", "paper_toy", ok=False)
    assert "plugin 'toy' from toy 1.0 cannot be loaded: RuntimeError: boom" in text


@pytest.mark.slow
def test_mistakes_stop_the_workflow_before_it_starts_and_are_named(fresh):
    edit(find_experiment(fresh), "epochs: 3", "epoch: 3")
    text = snakemake(fresh, ok=False)
    message = "first.yaml:5: train.epoch: unknown key; did you mean 'epochs'?"
    assert f"\nerror: workflows/experiments/toy/{message}\n" in text
    assert is_message_alone(text)
    assert not (fresh / "results").exists()
    text = snakemake(fresh, "--config", "sclae=smoke", ok=False)
    assert "error: workflows/config.yaml: sclae: unknown key; did you mean 'scale'?" in text
    assert is_message_alone(text)
    # Nothing stays locked.
    edit(find_experiment(fresh), "epoch: 3", "epochs: 3")
    assert plan_jobs(fresh)["train"] == 4


def is_message_alone(text):
    """Tell whether no header or traceback surrounds a message, and it is the last."""
    words = ("Traceback", "Exception", "ValueError", 'File "')
    return not any(word in text for word in words) and text.splitlines()[-1].startswith("error: ")


def test_mistakes_of_all_configured_experiments_are_named_at_once(fresh):
    for plugin in ("toy", "other"):
        edit(find_experiment(fresh, plugin), "epochs: 3", "epoch: 3")
    text = snakemake(fresh, "-n", ok=False)
    assert "toy/first.yaml:5: train.epoch: unknown key" in text
    assert "other/first.yaml:5: train.epoch: unknown key" in text


def test_missing_raw_files_are_named(fresh):
    (fresh / "workflows/datasets/raw.xyz").unlink()
    text = snakemake(fresh, ok=False)
    assert "water.yaml:2: sources.0.path: no file matches 'raw.xyz'" in text
    assert is_message_alone(text)


@pytest.mark.slow
def test_a_failed_job_shows_its_log_and_what_follows_does_not_run(fresh):
    edit(find_experiment(fresh), "width: 4", "width: 13")
    text = snakemake(fresh, "results/toy/first/base/metrics.json", ok=False)
    assert "error: thirteen neurons bring bad luck; take twelve" in text
    assert "Traceback" not in text
    # What is far above by now stands at the end again.
    _, _, end = text.partition("What has failed:\n")
    assert "  toy/first base train: failed" in end
    assert "thirteen neurons bring bad luck; take twelve" in " ".join(end.split())
    assert "log: results/toy/first/base/logs/train.log" in end
    assert not (fresh / "results/toy/first/base/model.pt").exists()
    assert (fresh / "results/toy/first/base/state/rank-0").exists()


@pytest.mark.slow
def test_a_model_that_is_brought_back_after_a_failure_is_taken(fresh):
    """`train --finish` writes what Snakemake has removed; here the test does."""
    edit(find_experiment(fresh), "width: 4", "width: 13")
    target, run = "results/toy/first/base/metrics.json", fresh / "results/toy/first/base"
    snakemake(fresh, target, ok=False)
    for name in ("model.pt", "history.jsonl"):
        (run / name).write_text("{}")
    assert plan_jobs(fresh, target) == {"evaluate": 1}
    snakemake(fresh, target)
    assert (run / "model.pt").read_text() == "{}"


def test_the_report_is_the_page_of_the_engine(finished):
    snakemake(finished, "--report", "report.html")
    page = (finished / "report.html").read_text()
    # In the order of the configuration, not of the alphabet.
    assert re.findall(r'<article class="page" id="([^"]*)"', page) == ["toy/first", "other/first"]
    assert page.count('<p class="lead">Ours beside the paper') == 2
    assert len(page) < 50_000  # none of Snakemake's libraries


def test_an_archive_is_the_report_of_snakemake_itself(finished):
    snakemake(finished, "--report", "report.zip")
    with ZipFile(finished / "report.zip") as archive:
        page = archive.read("report/report.html").decode()
        names = {Path(name).name for name in archive.namelist()}
    assert {"parity.png", "history.png"} <= names
    assert "What parity shows." in page
    assert '"figure": "Parity"' in page


@pytest.mark.slow
def test_the_report_tells_what_exists_and_fails_on_nothing_else(fresh):
    text = snakemake(fresh, "--report", "report.html", ok=False)
    assert "error: no experiment has figures in results/" in text
    own = find_experiment(fresh).with_name("own.yaml")
    own.write_text(find_experiment(fresh).read_text())
    snakemake(fresh, "--config", "experiments=toy/own")
    edit(find_experiment(fresh, "other"), "epochs: 3", "epoch: 3")
    text = snakemake(fresh, "--report", "report.html")
    assert "the report leaves out other/first: " in text
    page = (fresh / "report.html").read_text()
    assert 'id="toy/own"' in page
    assert 'id="toy/first"' not in page
    text = snakemake(fresh, "--report", "r.html", "--config", "experiments=toy/first", ok=False)
    assert "error: no experiment has figures" in text
    snakemake(fresh, "--report", "paper.html", "paper_toy")
    assert 'id="toy/own"' in (fresh / "paper.html").read_text()


@pytest.mark.slow
def test_a_training_that_fails_stops_no_other_experiment(fresh):
    edit(find_experiment(fresh), "width: 4", "width: 13")
    text = snakemake(fresh, "--cores", "1", ok=False)
    assert "error: thirteen neurons bring bad luck; take twelve" in text
    assert not (fresh / "results/toy/first/figures").exists()
    assert (fresh / "results/other/first/figures/reproduction.json").exists()
    assert plan_jobs(fresh, "results/other/first/figures") == {}


def test_the_stages_of_the_checks_are_those_of_the_rules():
    rules = {path.stem for path in (REPOSITORY / "workflows/rules").glob("*.smk")}
    others = {"data", "download", "failures", "figures", "learn", "papers", "profile"}
    assert rules == {*ARTIFACTS, *others}
