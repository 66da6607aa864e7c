"""`pipeline-core status`: what it shows of a project, and that it follows to the end."""

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from pipeline_core.cli.status_follow import News, follow_until_nothing_runs, open_screen
from pipeline_core.status.activity import Activity, Training
from pipeline_core.status.files import Failure, locate_failure, write_failure
from pipeline_core.status.lines import WIDTH, format_all, format_overview, format_summary
from pipeline_core.status.overview import Overview
from pipeline_core.system.locks import Holder, hold, locate_lock

TRAINING = Training(
    word="epoch",
    epoch=11,
    epochs=60,
    step=40,
    steps=100,
    loss=0.0321,
    val_loss=0.0456,
    samples_per_s=831.2,
    elapsed_s=724.0,
    left_s=2890.0,
    until=None,
    quiet_s=None,
)
HOLDER = Holder("node017.cluster.example", 4242, "2025-01-01T12:00:00+00:00", "98765", 2, None)
RUNNING = Activity("train", "running", HOLDER, training=TRAINING)
DONE = Activity("graph", "done")
FIGURES = Activity("figures", "waiting")
LABELS = {"round_1": (4, 4), "round_2": (1, 4)}


def make_overview(train=RUNNING, variant="base", **more):
    runs = {variant: {"graph": DONE, "train": train}, **more}
    return Overview("alpha/first", {"water": Activity("data", "done")}, runs, FIGURES, LABELS)


def test_labels_of_rounds_are_counted():
    overview = make_overview()
    assert "  labels: round_1 4 of 4, round_2 1 of 4" in format_overview(overview)
    assert overview.to_json()["labels"]["round_2"] == {"done": 1, "of": 4}
    without = format_overview(replace(overview, labels={}))
    assert not any("labels" in line for line in without)


@pytest.fixture
def configured(folder):
    (folder / "workflows/config.yaml").write_text("experiments: [alpha/first]\n")
    return folder


def make_artifacts(folder, variant, *names):
    path = folder / "results/alpha/first" / variant
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).write_text("")
    return path


def test_the_configured_experiments(configured, call):
    make_artifacts(configured, "base", "graph.h5", "model.pt")
    result = call("status")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "alpha/first: data of water waiting, figures waiting"
    assert lines[1].split() == ["variant", "graph", "partition", "train", "evaluate"]
    assert lines[2].split() == ["base", "done", "waiting", "done", "waiting"]
    # `longer` has the graph of `base`.
    assert lines[4].split() == ["longer", "done", "waiting", "waiting", "waiting"]
    path = configured / "workflows/experiments/alpha/broken.yaml"
    path.write_text("description: d\nplugin: alpha\nepocs: 3\n")
    result = call("status", "alpha/broken", "alpha/first")  # which hides no other
    assert result.exit_code == 1
    assert "alpha/first: data of water waiting" in result.stdout
    assert "epocs: unknown key" in result.stdout


def test_a_stage_that_runs_and_one_that_failed(configured, call):
    base, wide = make_artifacts(configured, "base"), make_artifacts(configured, "wide")
    write_failure(locate_failure(wide, "evaluate"), ValueError("no labels; set `labels`"))
    (wide / "logs").mkdir()
    (wide / "logs/evaluate.log").write_text("error: no labels")
    with hold(locate_lock(base, "train"), "training", 2):
        text = call("status", "alpha/first").stdout
        content = json.loads(call("status", "--json").stdout)
    (experiment,) = content["experiments"]
    assert experiment["datasets"]["water"] == {"stage": "data", "state": "waiting"}
    assert experiment["runs"]["base"]["train"]["holder"]["ranks"] == 2
    assert content["problems"] == []
    assert "base train: 2 ranks, the first on" in text
    assert "wide evaluate: failed" in text
    assert "no labels; set `labels`" in text
    assert "log: results/alpha/first/wide/logs/evaluate.log" in text


def test_an_experiment_that_is_not_configured_but_runs(folder, call):
    result = call("status")
    assert result.exit_code == 1
    assert "name an experiment" in result.stderr
    with hold(locate_lock(make_artifacts(folder, "base"), "train"), "training"):
        assert "alpha/first: " in call("status").stdout


def show(training):
    """Return what is shown of a training, on one line."""
    overview = make_overview(replace(RUNNING, training=training))
    return " ".join(" ".join(format_all([overview], [])).split())


def test_all_that_is_known_of_a_training():
    assert (
        "base train: epoch 12/60 40%, loss 3.21e-02, val 4.56e-02, 831 samples/s, "
        "0:12:04 elapsed, 0:48:10 left "
        "2 ranks, the first on node017.cluster.example (pid 4242, Slurm job 98765), "
        "since 2025-01-01"
    ) in show(TRAINING)
    # In a budget of time.
    text = show(replace(TRAINING, epochs=None, until="2025-01-01T12:48:10+00:00"))
    assert "base train: epoch 12 40%, loss" in text
    assert "0:48:10 left (until 2025-01-01" in text


def test_a_training_of_which_little_is_known():
    little = replace(
        TRAINING, epochs=None, steps=0, loss=None, val_loss=None, samples_per_s=None,
        elapsed_s=None, left_s=None, quiet_s=3700.0,
    )  # fmt: skip
    assert "base train: epoch 11, no news for 1:01:40" in show(little)
    overview = make_overview(base={"graph": DONE}, variant="other")  # which has no such stage
    assert "  base     done   -" in format_all([overview], [])


def test_every_line_has_room():
    name = "a_variant_with_a_name_that_is_longer_than_anybody_would_like_to_read_twice"
    failure = Failure("x" * 200 + " and words " * 20, "2025-01-01T12:00:00+00:00", "node")
    failed = Activity("train", "failed", failure=failure)
    overview = make_overview(variant=name, base={"train": failed, "infer": DONE})
    for lines in (format_all([overview], ["p" * 300]), format_summary(overview)):
        assert max(map(len, lines)) <= WIDTH
    assert any(name in line for line in format_all([overview], []))
    assert format_overview(make_overview(failed), brief=True)[-1].endswith(" …")


def follow(states, snakemake, display=lambda overviews: None):
    """Follow an experiment through states, each for one look; return the seconds it took."""
    looks, waited = iter(states), []

    def read():
        return [make_overview(next(looks))]

    follow_until_nothing_runs(read, display, waited.append, snakemake)
    return sum(waited)


def test_it_follows_until_nothing_runs_for_a_while(tmp_path):
    shown = []
    states = [DONE, DONE, RUNNING, RUNNING, *[DONE] * 50]
    assert follow(states, tmp_path, shown.append) == 2.0 * (4 + 5)
    assert [one.is_running() for (one,) in shown] == [False, False, True, True, *[False] * 6]


def test_it_waits_for_a_snakemake(tmp_path):
    """Between two jobs of a cluster may be hours."""
    lock = tmp_path / "locks/0.output.lock"
    lock.parent.mkdir()
    lock.write_text("")

    def end(overviews):
        if next(count) == 40:
            lock.unlink()

    count = iter(range(100))
    assert follow([DONE] * 100, tmp_path, end) == 2.0 * (40 + 5)


def test_an_interrupt_ends_it(tmp_path):
    def interrupt(overviews):
        raise KeyboardInterrupt

    assert follow([RUNNING] * 3, tmp_path, interrupt) == 0


def test_news():
    lines, now = [], [0.0]
    news = News(lines.append, lambda: now[0])
    waiting = Activity("train", "waiting")
    later = replace(RUNNING, training=replace(TRAINING, epoch=12, step=0))
    for now[0], train in (
        (0.0, waiting), (2.0, waiting), (4.0, RUNNING), (6.0, RUNNING), (63.0, RUNNING),
        (64.0, RUNNING), (66.0, later), (68.0, Activity("train", "done")),
    ):  # fmt: skip
        news([make_overview(train)])
    assert sum("2 ranks, the first on" in line for line in lines) == 1
    heads = [line for line in lines if not line.startswith("    ")]
    assert all(re.match(r"\d\d:\d\d:\d\d alpha/first base train: ", line) for line in heads)
    assert [line[9:].partition(",")[0] for line in heads] == [
        "alpha/first base train: epoch 12/60 40%",
        "alpha/first base train: epoch 12/60 40%",
        "alpha/first base train: epoch 13/60 0%",
        "alpha/first base train: done",
    ]
    assert max(map(len, lines)) <= WIDTH


def test_a_screen_is_drawn_over(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # one that can be drawn over
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, height=30, highlight=False)
    calm = replace(make_overview(DONE), experiment="alpha/calm")
    with open_screen(console, lambda: "the end") as show:
        show([make_overview(), calm])
        first = file.getvalue()
        show([make_overview(DONE), calm])
    plain = re.sub(r"\x1b\[[\d;?]*\w", "", first)
    assert "epoch 12/60 40%" in plain
    assert "alpha/calm: 1 waiting, 3 done" in plain
    assert re.search(r"\d\d:\d\d:\d\d  the end$", plain, re.MULTILINE)
    assert max(map(len, plain.splitlines())) <= 40
    assert "\x1b[1A" in file.getvalue()[len(first) :]
