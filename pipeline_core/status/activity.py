"""State and progress of stages, read from small files beside the artifacts.

Reading takes no lock and loads no artifact, so it can be done at any time, from any machine that
sees the folder.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pipeline_core.model_info import MAKERS
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.status.files import (
    Failure,
    locate_failure,
    read_failure,
    read_position,
    read_tail,
)
from pipeline_core.status.pace import Position, TrainingStatus
from pipeline_core.system.locks import Holder, locate_lock, read_holder

State = Literal["done", "running", "failed", "waiting"]

_QUIET: Final = 60.0
"""Seconds without news after which their number is reported."""
_USUAL: Final = 5.0
"""Factor on the usual time of a step or a validation up to which silence is not reported."""


@dataclass(frozen=True, kw_only=True)
class Training(TrainingStatus):
    """Progress of a training, as it is shown.

    Attributes:
        word: Unit of progress: "epoch", or the plugin's own word.
        elapsed_s: Time so far over all starts, s.
        left_s: Estimated time left, s; None while unknown.
        until: Expected end, in ISO 8601, if its time is limited.
        quiet_s: Time since the last news if that is longer than usual, s.
    """

    word: str
    elapsed_s: float | None
    left_s: float | None = None
    until: str | None = None
    quiet_s: float | None = None


@dataclass(frozen=True)
class Activity:
    """State of a stage.

    Attributes:
        stage: Its name.
        state: "done" if its artifacts exist, whether or not they belong to the experiment as it is
            now: `pipeline-core verify` checks that.
        holder: The process that runs it, or ran it when it was killed.
        failure: Cause of its failure.
        log: Output of its last call by Snakemake, if there is such a file.
        training: Progress, if it is a running training.
        record: Record of its last success: start, seconds, ranks, summary and more.
        owner: The variant that made the artifacts, if several variants share them.
    """

    stage: str
    state: State
    holder: Holder | None = None
    failure: Failure | None = None
    log: Path | None = None
    training: Training | None = None
    record: dict[str, Any] | None = None
    owner: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, without what is unknown."""
        content = {**asdict(self), "log": self.log and str(self.log)}
        return {key: value for key, value in content.items() if value is not None}


def read_dataset(dataset: DatasetRun) -> Activity:
    """Return the state of the data stage of a dataset."""
    return _read(dataset.folder, "data", [dataset.data])


def read_run(run: Run, now: float) -> dict[str, Activity]:
    """Return the states of the stages of a run, without data and figures.

    Args:
        run: The run; shared artifacts are reported with the variant that makes them.
        now: Seconds since 1970.
    """
    artifacts: dict[str, list[Path]] = {}
    for name, stage in MAKERS.items():
        artifacts.setdefault(stage, []).append(getattr(run, name))
    found = {}
    for stage, paths in artifacts.items():
        folder = paths[0].parent
        owner = None if folder == run.folder else folder.name
        found[stage] = replace(_read(folder, stage, paths), owner=owner)
    train = found["train"]
    if train.state == "running":
        found["train"] = replace(train, training=read_training(run, now, train.holder))
    return found


def read_figures(experiment: ExperimentRun) -> Activity:
    """Return the state of the figures stage; drawing in progress leaves no file and is not seen."""
    folder = experiment.folder
    found = _read(folder.parent, "figures", [folder / "index.json"])
    log = folder.with_name("figures.log")
    return replace(found, log=log if log.exists() else None)


def _read(folder: Path, stage: str, artifacts: Iterable[Path]) -> Activity:
    holder = read_holder(locate_lock(folder, stage))
    failure = read_failure(locate_failure(folder, stage))
    path = folder / "logs" / f"{stage}.log"
    log = path if path.exists() else None
    if holder is not None and not holder.has_ended:
        if failure is None or failure.ended < holder.since:
            return Activity(stage, "running", holder, log=log)
    elif holder is not None and failure is None:
        cause = f"process {holder.pid} was killed, or ended without an error message"
        failure = Failure(cause, "", holder.host)
    if failure is not None:
        return Activity(stage, "failed", holder, failure, log)
    if not all(path.exists() for path in artifacts):
        return Activity(stage, "waiting", log=log)
    return Activity(stage, "done", log=log, record=_read_record(folder, stage))


def _read_record(folder: Path, stage: str) -> dict[str, Any] | None:
    records = [line for line in read_tail(folder / "records.jsonl") if line.get("stage") == stage]
    return records[-1] if records else None


def read_training(run: Run, now: float, holder: Holder | None = None) -> Training | None:
    """Return the progress of a training; None if none has been recorded yet.

    Args:
        run: The run.
        now: Seconds since 1970.
        holder: The process that trains; a history written before it started is ignored.
    """
    position = read_position(run)
    if position is not None:
        return locate_training(position, now)
    with suppress(OSError):
        begun = datetime.fromisoformat(holder.since).timestamp() if holder else 0.0
        records = read_tail(run.history) if run.history.stat().st_mtime >= begun else []
        return _describe_record(run, records[-1]) if records else None
    return None


def locate_training(position: Position, now: float) -> Training:
    """Return the progress of a training at a time, from its last recorded position.

    Args:
        position: The position, recorded some seconds before.
        now: Seconds since 1970.
    """
    age, left = max(0.0, now - position.updated), position.estimate_left()
    usual = _USUAL * max(position.step_seconds or 0.0, position.rest_seconds or 0.0)
    return Training(
        **{field.name: getattr(position, field.name) for field in fields(TrainingStatus)},
        word="epoch",
        elapsed_s=position.elapsed + age,
        left_s=None if left is None else max(0.0, left - age),
        until=None if position.until is None else _format_time(position.until),
        quiet_s=age if age > max(_QUIET, usual) else None,
    )


def _describe_record(run: Run, record: dict[str, Any]) -> Training:
    """Return the progress in the last line of a history, for plugins that record no position."""
    named = "step" in record
    return Training(
        word=record.get("step", "epoch"),
        epoch=record["epoch"],
        epochs=None if named else run.planned_epochs,
        loss=(record.get("train") or {}).get("loss"),
        val_loss=(record.get("val") or {}).get("loss"),
        samples_per_s=record.get("samples_per_s"),
        elapsed_s=record.get("elapsed"),
    )


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
