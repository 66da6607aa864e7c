"""Staleness of artifacts: comparison of their recorded inputs and options with the run.

An artifact records the identities of its stage's inputs, the stage's part of the experiment, the
seed and the plugin. It is stale when one of these differs now. Device, ranks and threads do not
count. Nor does the source of the plugin: the workflow reruns what an edit affects, but an edit does
not make results unreadable by hand.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from pipeline_core.artifacts import provenance, store
from pipeline_core.artifacts.seals import identify
from pipeline_core.config.raw_files import hash_raw_files, stamp_file
from pipeline_core.config.renamed import drop_removed, upgrade_options
from pipeline_core.model_info import MAKERS
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import ExperimentRun, Run

_SHOWN: Final = 3
"""Number of differences that a message lists."""


@dataclass(frozen=True)
class Fault:
    """An artifact that cannot be used.

    Attributes:
        path: The file.
        problem: What is wrong.
        command: Command that makes it again.
    """

    path: Path
    problem: str
    command: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; make it new: {self.command}"


def require_current(run: Run, stage: str) -> None:
    """Check that the inputs of a stage belong to the run as it is now.

    Raises:
        ValueError: One does not, or is damaged; the message names the command that makes it again.
    """
    for dataset in ([run.dataset] if run.dataset else []) + run.list_further(stage):
        _refuse(find_dataset_fault(dataset))
    for name in run.list_inputs(stage):
        if name in MAKERS:
            _refuse(find_fault(run, name))
    for member in run.members if stage in ("evaluate", "infer") else ():
        for name in ("model", "predictions") if stage == "evaluate" else ("model",):
            _refuse(find_fault(member, name))


@contextmanager
def keep_identities(run: DatasetRun | Run, stage: str) -> Iterator[None]:
    """Make artifacts of a stage record its inputs as they were when it began.

    If an input changes meanwhile, the results may be of the old or the new content, but are stale.
    """
    identities: dict[Path, str] = {}
    if isinstance(run, DatasetRun):
        with suppress(ValueError, OSError):  # the stage itself reports it better
            paths = run.find_raw_files().values()
            identities = {path: str(stamp_file(path)) for path in paths if path.is_file()}
    else:
        inputs = run.list_inputs(stage).values()
        identities = {path: identify(path) for path in inputs if path.is_file()}
    token = provenance.AT_BEGIN.set(identities)
    try:
        yield
    finally:
        provenance.AT_BEGIN.reset(token)


def require_current_model(run: Run) -> None:
    """Check that the model of a run was trained by the run as it is now.

    A run of which only the model file is left is accepted.

    Raises:
        ValueError: As for `require_current`.
    """
    if run.metadata is None:
        _refuse(find_fault(run, "model"))


def require_current_results(experiment: ExperimentRun) -> None:
    """Check that the inputs of the figures belong to the experiment as it is now.

    Raises:
        ValueError: As for `require_current`.
    """
    for run in experiment.runs.values():
        if run.dataset is not None:
            _refuse(find_dataset_fault(run.dataset))
            _refuse(find_report_fault(run.dataset))
        for name in MAKERS:
            _refuse(find_fault(run, name))
        _refuse(find_history_fault(run))


def _refuse(fault: Fault | None) -> None:
    if fault is not None:
        raise ValueError(str(fault))


def find_dataset_fault(dataset: DatasetRun) -> Fault | None:
    """Return the fault of the data of a dataset; None if they are current or absent."""
    return _find_import_fault(dataset, dataset.data)


def find_report_fault(dataset: DatasetRun) -> Fault | None:
    """Return the fault of the report of an import, as `find_dataset_fault` does."""
    return _find_import_fault(dataset, dataset.report)


def _find_import_fault(dataset: DatasetRun, path: Path) -> Fault | None:
    if not path.is_file():
        return None
    facts = store.read_provenance(path)
    if _is_of_another_stage(path, facts, "data"):
        problem = f"not made by the stage 'data', but by {facts.get('stage', 'another')!r}"
        return Fault(path, problem, dataset.command)
    if "options" not in facts:
        return None
    problem = _compare_trees(_select_dataset_causes(dataset, facts), dataset.select_params())
    problem = problem or _compare_raw_files(dataset, facts.get("inputs", {}))
    return Fault(path, problem, dataset.command) if problem else None


def _select_dataset_causes(dataset: DatasetRun, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded counterpart of today's `DatasetRun.select_params`."""
    params = dataset.select_params()
    parts = {part.name: part for part in dataset.mixed}
    causes = _read_options(facts["options"], dataset.options, params)
    if "parts" in facts:
        causes["parts"] = {
            name: _read_options(options, parts[name].options, parts[name].select_params())
            if name in parts
            else options
            for name, options in facts["parts"].items()
        }
    return causes


def _read_options(
    stored: Mapping[str, Any], model: BaseModel, params: Mapping[str, Any]
) -> dict[str, Any]:
    options = _complete(stored, model)
    unimportant = model.model_dump(mode="json").keys() - params.keys()
    return {key: value for key, value in options.items() if key not in unimportant}


def _compare_raw_files(dataset: DatasetRun, recorded: Mapping[str, str]) -> str:
    try:
        present = dataset.hash_raw_files()
    except ValueError:  # the data may be used where the raw files are not
        return ""
    # Files read beside the raw files appear only in the record.
    beside = {n: dataset.path.parent / n for n in recorded if n not in present}
    present |= hash_raw_files(beside, dataset.raw_memory)
    changed = [name for name, digest in present.items() if recorded.get(name) != digest]
    if not changed or not recorded:
        return ""
    words = "are new or have changed" if len(changed) > 1 else "is new or has changed"
    return f"raw file {_list_some(changed)} {words} since the import"


def find_fault(run: Run, name: str) -> Fault | None:
    """Return the fault of an artifact of a run; None if it is current or absent.

    Args:
        run: The run.
        name: One of `MAKERS`.

    Raises:
        ValueError: The file is damaged.
    """
    path, stage = getattr(run, name), MAKERS[name]
    if not path.is_file() or not run.has_stage(stage):
        return None
    facts = store.read_provenance(path)
    if _is_of_another_stage(path, facts, stage):
        problem = f"not made by the stage {stage!r}, but by {facts.get('stage', 'another')!r}"
        return Fault(path, problem, run.name_command(stage))
    if "options" not in facts or "seed" not in facts:
        return None
    problem = compare_causes(run, stage, facts) or _compare_inputs(
        run, stage, facts.get("inputs", {})
    )
    return Fault(path, problem, run.name_command(stage)) if problem else None


def compare_causes(run: Run, stage: str, facts: Mapping[str, Any]) -> str:
    """Return the differences between a run and an artifact's recorded options; empty if none.

    Args:
        run: The run.
        stage: The stage that made the artifact.
        facts: Its provenance, with `plugin`, `seed` and `options`.
    """
    return _compare_trees(_select_causes(run, stage, facts), run.list_causes(stage))


def _is_of_another_stage(path: Path, facts: Mapping[str, Any], stage: str) -> bool:
    """Return True if an artifact was not made by a stage.

    Weights that no stage has written may record no stage; JSON, which could be anything, must
    record it if it has a checksum.
    """
    is_recorded = "stage" in facts or "options" in facts
    must_be = path.suffix == ".json" and store.has_checksum(path)
    return (is_recorded or must_be) and facts.get("stage") != stage


def find_history_fault(run: Run) -> Fault | None:
    """Return the fault of the history of a run; None if it belongs to the run's model."""
    if not (os.path.lexists(run.history) and run.model.is_file()):
        return None
    written = store.read_provenance(run.model).get("history")
    if written is None or written == identify(run.history):
        return None
    problem = f"not what the training of {run.model.name} wrote"
    return Fault(run.history, problem, run.name_command("train"))


def _select_causes(run: Run, stage: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded counterpart of today's `Run.list_causes`."""
    now = run.list_causes(stage)
    seed = None if now["seed"] is None else facts["seed"]  # the engine's graph has none
    recorded: dict[str, Any] = {"plugin": facts.get("plugin"), "seed": seed}
    for key, stored in facts["options"].items():
        whole = key in run.sections and facts.get("plugin") == run.model_info.name
        if whole:
            known = drop_removed(stored, now.get(key, {}), run.model_info.removed, key)
            recorded[key] = _complete(known, run.sections[key])
        else:
            recorded[key] = dict(stored)
    for key in ("profile", "start_from"):
        if key not in now.get("train", {}):
            recorded.get("train", {}).pop(key, None)
    return recorded


def _complete(stored: Mapping[str, Any], model: BaseModel) -> dict[str, Any]:
    """Return options of an earlier version, completed by newer options at their defaults."""
    kind = type(model)
    stored = upgrade_options(stored, kind)
    try:
        return kind.model_validate_json(json.dumps(stored)).model_dump(mode="json")
    except ValidationError:
        # The stored options are complete, and some options exclude each other.
        fields = kind.model_fields.items()
        added = {n: one.get_default(call_default_factory=True) for n, one in fields}
        added = {n: default for n, default in added.items() if n not in stored}
        defaults = kind.model_construct(**added).model_dump(mode="json", include=set(added))
        return {**stored, **defaults}


def _compare_trees(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the differences between two trees of options; empty if there are none."""
    ours, theirs = dict(_flatten(now)), dict(_flatten(recorded))
    names = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
    differences = [f"{n} {theirs.get(n, 'absent')}, now {ours.get(n, 'absent')}" for n in names]
    return f"made with {_list_some(differences, '; ')}" if differences else ""


def _compare_inputs(run: Run, stage: str, recorded: Mapping[str, str]) -> str:
    """Return the inputs whose contents have changed; empty if there are none."""
    paths = run.list_inputs(stage)
    changed = [
        f"{paths[name]} has changed since"
        for name, identity in recorded.items()
        if name in paths and paths[name].is_file() and identify(paths[name]) != identity
    ]
    others = [name for name in recorded if name not in paths]
    changed += [f"made from {name}, which the run does not read now" for name in others]
    if "start_from" in paths and "start_from" not in recorded:
        changed.append(f"made without train.start_from {paths['start_from']}")
    return _list_some(changed, "; ")


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, json.dumps(value, sort_keys=True)


def _list_some(words: list[str], separator: str = ", ") -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return separator.join(words[:_SHOWN]) + more
