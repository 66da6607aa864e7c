"""What runs, has run and has failed, from files alone."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

import toy_potential as toy
from core.observers.test_observers import POSITION as OBSERVED
from pipeline_core import hookimpl
from pipeline_core.observers.activity import FAILURES
from pipeline_core.observers.lock import LOCK
from pipeline_core.status import activity
from pipeline_core.status import files as status_files
from pipeline_core.system.locks import hold, locate_lock
from pipeline_core.system.processes import name_host

POSITION = replace(
    OBSERVED, step_seconds=0.25, rest_seconds=5.0, samples_per_s=32.0, val_loss=None, updated=1000.0
)


@pytest.fixture
def run(tmp_path):
    return toy.make_run(tmp_path)


def read(run, stage="train"):
    return activity.read_run(run, 1001.0)[stage]


def write_record(path, **facts):
    """Write the record of a lock, as a process that was killed leaves it."""
    record = {"host": name_host(), "pid": os.getpid(), "since": "2025-01-01T00:00:00+00:00"}
    rest = {"job": None, "ranks": 1, "started": None, "ancestors": []}
    path.write_text(json.dumps({**record, **rest, **facts}))


def find_ended_pid():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid


def test_a_stage_is_done_when_all_its_artifacts_are_there(run):
    assert read(run, "partition").state == "done"
    assert read(run, "evaluate").state == "waiting"
    run.metrics.write_text("{}")
    assert read(run, "evaluate").state == "waiting"
    run.predictions.write_text("")
    assert read(run, "evaluate").state == "done"
    run.model.write_text("")
    lines = [{"stage": "train", "seconds": 1}, {"stage": "train", "seconds": 2}, {"stage": "infer"}]
    (run.folder / "records.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"stage": "tr')
    assert read(run).record == lines[1]  # of the last success


def test_who_runs_a_stage(run):
    """An older artifact does not hide it, and a call that is refused is no failure."""
    assert read(run).state == "waiting"
    run.model.write_text("")
    with hold(locate_lock(run.folder, "train"), "training", 4):
        found = read(run)
        assert found.state == "running"
        assert (found.holder.host, found.holder.pid) == (name_host(), os.getpid())
        assert found.holder.ranks == 4
        assert not found.holder.has_ended
        assert read(run, "infer").state == "waiting"
        with pytest.raises(ValueError, match="is under way"):
            train_with(run, Training(), FAILURES, LOCK)
        assert read(run).state == "running"
    assert read(run).state == "done"


def test_a_killed_process_is_noticed_on_its_host(run):
    path, pid = locate_lock(run.folder, "train"), find_ended_pid()
    write_record(path, pid=pid)
    found = read(run)
    assert found.state == "failed"
    assert f"process {pid} was killed" in found.failure.cause
    write_record(path, started=1)  # the number of this process was that of another one
    assert read(run).state == "failed"
    write_record(path, host="node017", pid=pid)
    assert read(run).state == "running"


class Training:
    """Ends as it is told to."""

    error = ValueError("thirteen bring bad luck;\n  take twelve")

    @hookimpl
    def train(self):
        if self.error:
            raise self.error
        return {"epochs": 1}


def train_with(run, *plugins):
    for plugin in plugins:
        run.registry.manager.register(plugin)
    return run.registry.select_hook("train", "toy")(run=run)


def test_why_a_stage_failed(run):
    training = Training()
    with pytest.raises(ValueError, match="thirteen"):
        train_with(run, training, FAILURES, LOCK)
    found = read(run)
    assert found.state == "failed"
    assert found.failure.cause == "thirteen bring bad luck; take twelve"
    assert found.failure.host == name_host()
    run.model.write_text("")  # the best so far
    assert read(run).state == "failed"
    training.error = None
    train_with(run)
    assert read(run).state == "done"


def test_the_first_of_several_ranks_says_the_cause(run):
    path = status_files.locate_failure(run.folder, "train")
    status_files.write_failure(path, KeyError("energy"))
    with pytest.raises(FileExistsError):
        status_files.write_failure(path, ValueError("rank 1 has failed"))
    assert read(run).failure.cause == "KeyError: 'energy'"
    # A failure before the present call is over.
    write_record(locate_lock(run.folder, "train"), since="2999-01-01T00:00:00+00:00")
    assert read(run).state == "running"


def test_figures_and_datasets(tmp_path):
    folder = tmp_path / "toy/first/figures"
    experiment = SimpleNamespace(folder=folder)
    assert activity.read_figures(experiment).state == "waiting"
    folder.mkdir(parents=True)
    status_files.write_failure(folder.parent / ".figures.failed", KeyError("groups"))
    (folder.parent / "figures.log").write_text("KeyError")
    found = activity.read_figures(experiment)
    assert (found.state, found.log) == ("failed", folder.parent / "figures.log")
    (folder.parent / ".figures.failed").unlink()
    (folder / "index.json").write_text("[]")
    assert activity.read_figures(experiment).state == "done"
    dataset = SimpleNamespace(folder=tmp_path, data=tmp_path / "data.h5")
    assert activity.read_dataset(dataset).state == "waiting"
    with hold(locate_lock(tmp_path, "data"), "import"):
        assert activity.read_dataset(dataset).state == "running"


def test_where_a_training_is(run):
    assert status_files.read_position(run) is None
    status_files.write_position(run, POSITION)
    assert status_files.read_position(run) == POSITION
    assert not list(run.folder.glob("*.part"))
    with hold(locate_lock(run.folder, "train"), "training"):
        found = read(run)
    assert found.training == activity.locate_training(POSITION, 1001.0)
    assert json.loads(json.dumps(found.to_json()))["training"]["epoch"] == 2
    status_files.locate_position(run).write_text(json.dumps(asdict(POSITION))[:-9])
    assert status_files.read_position(run) is None


def test_time_goes_on_between_what_is_said():
    """(8 x 100 - 40) steps of 0.25 s and 8 rests of 5 s are 230 s, of which 2 s have passed."""
    found = activity.locate_training(POSITION, 1002.0)
    assert (found.elapsed_s, found.left_s, found.quiet_s) == (62.0, 228.0, None)
    assert activity.locate_training(POSITION, 1061.0).quiet_s == 61.0
    assert activity.locate_training(POSITION, 1400.0).left_s == 0.0
    # A clock of another machine that is behind.
    assert activity.locate_training(POSITION, 990.0).elapsed_s == 60.0
    slow = replace(POSITION, step_seconds=30.0)  # while steps are long silence is usual
    assert activity.locate_training(slow, 1149.0).quiet_s is None
    assert activity.locate_training(slow, 1151.0).quiet_s == 151.0


def test_a_plugin_that_tells_no_position_has_its_history(run):
    assert activity.read_training(run, 0.0) is None
    last = {"epoch": 2, "step": "polish", "train": {"loss": 0.25}, "elapsed": 3.0}
    records = [{"epoch": 1}, last]
    run.history.write_text("\n".join(map(json.dumps, records)) + '\n{"epo')
    found = activity.read_training(run, 0.0)
    assert (found.word, found.epoch, found.epochs) == ("polish", 2, None)
    assert (found.loss, found.elapsed_s, found.left_s) == (0.25, 3.0, None)
    run.history.write_text('{"epoch": 2}\n')
    assert activity.read_training(run, 0.0).epochs == 3
    write_record(locate_lock(run.folder, "train"), since="2999-01-01T00:00:00+00:00")
    assert read(run).training is None  # of the training before
