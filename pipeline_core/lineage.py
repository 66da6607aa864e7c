"""Which artifacts belong together: each was made from the inputs and by the options of its run.

An artifact says what it was made from: the identities of what its stage read, the stage's part of
the experiment, the seed and the plugin. It is stale when one of these is another now. Device, ranks
and threads are no part of it. Nor is the source of the plugin: the workflow computes again what an
edit touches, but by hand an edit does not make results unreadable. Files of earlier versions do
not say enough, and are taken as they are.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from pipeline_core import provenance, store
from pipeline_core.config.raw_files import hash_raw_files, stamp_file
from pipeline_core.config.renamed import name_former
from pipeline_core.dataset_run import DatasetRun
from pipeline_core.model_info import MAKERS
from pipeline_core.run import ExperimentRun, Run
from pipeline_core.seals import identify

logger = logging.getLogger(__name__)

_SHOWN: Final = 3
"""Differences that a message lists."""


@dataclass(frozen=True)
class Fault:
    """An artifact that cannot be used.

    Attributes:
        path: The file.
        problem: What is wrong.
        command: What makes it new.
    """

    path: Path
    problem: str
    command: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; make it new: {self.command}"


def require_current(run: Run, stage: str) -> None:
    """Check that what a stage of a run reads belongs to the run as it is now.

    Raises:
        ValueError: It does not, or is damaged; the message says which command makes it new.
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
    """Let artifacts of a stage say what its inputs were when it began, though they change since.

    Its results may be of what was there then, and are never of what came later without being stale.
    """
    identities: dict[Path, str] = {}
    if isinstance(run, DatasetRun):
        with suppress(ValueError, OSError):  # the stage says better what is wrong
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

    A run of which nothing is left but its model is that of the model.

    Raises:
        ValueError: As for `require_current`.
    """
    if run.metadata is None:
        _refuse(find_fault(run, "model"))


def require_current_results(experiment: ExperimentRun) -> None:
    """Check that what is drawn belongs to the experiment as it is now.

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
    """Return what is wrong with the data of a dataset; None if they are current, or not there."""
    return _find_import_fault(dataset, dataset.data)


def find_report_fault(dataset: DatasetRun) -> Fault | None:
    """Return what is wrong with the report of an import, as `find_dataset_fault` does."""
    return _find_import_fault(dataset, dataset.report)


def _find_import_fault(dataset: DatasetRun, path: Path) -> Fault | None:
    if not path.is_file():
        return None
    facts = _read_facts(path)
    if _is_of_another_stage(path, facts, "data"):
        problem = f"not made by the stage 'data', but by {facts.get('stage', 'another')!r}"
        return Fault(path, problem, dataset.command)
    if "options" not in facts:
        return None
    problem = _compare_trees(_select_dataset_causes(dataset, facts), dataset.select_params())
    problem = problem or _compare_raw_files(dataset, facts.get("inputs", {}))
    return Fault(path, problem, dataset.command) if problem else None


def _select_dataset_causes(dataset: DatasetRun, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return of recorded facts what `DatasetRun.select_params` gives today."""
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


def _compare_raw_files(dataset: DatasetRun, known: Mapping[str, str]) -> str:
    try:
        present = dataset.hash_raw_files()
    except ValueError:  # the data may be used where the raw files are not
        return ""
    # What was read beside raw files is known by the record alone.
    beside = {n: dataset.path.parent / n for n in known if n not in present}
    present |= hash_raw_files(beside, dataset.raw_memory)
    changed = [name for name, digest in present.items() if known.get(name) != digest]
    if not changed or not known:
        return ""
    words = "are new or have changed" if len(changed) > 1 else "is new or has changed"
    return f"raw file {_list_some(changed)} {words} since the import"


def find_fault(run: Run, name: str) -> Fault | None:
    """Return what is wrong with an artifact of a run; None if it is current, or not there.

    Args:
        run: The run.
        name: One of `MAKERS`.

    Raises:
        ValueError: The file is damaged.
    """
    path, stage = getattr(run, name), MAKERS[name]
    if not path.is_file() or not run.has_stage(stage):
        return None
    facts = _read_facts(path)
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
    """Return what of a run is another now than when an artifact was made; empty if nothing is.

    Args:
        run: The run.
        stage: The stage that made the artifact.
        facts: Its provenance, with `plugin`, `seed` and `options`.
    """
    return _compare_trees(_select_causes(run, stage, facts), run.list_causes(stage))


def _is_of_another_stage(path: Path, facts: Mapping[str, Any], stage: str) -> bool:
    """Tell whether an artifact is none of a stage.

    Weights that no stage has written may say nothing; of JSON, which could be anything, all that
    this version seals does.
    """
    says_so = "stage" in facts or "options" in facts
    needs_to = path.suffix == ".json" and store.is_sealed(path)
    return (says_so or needs_to) and facts.get("stage") != stage


def _read_facts(path: Path) -> dict[str, Any]:
    if store.is_sealed(path):
        return store.read_provenance(path)
    logger.info("%s: of an earlier version, without a checksum: taken as it is", path)
    return {}


def find_history_fault(run: Run) -> Fault | None:
    """Return what is wrong with the history of a run; None if it is that of its model."""
    if not (os.path.lexists(run.history) and run.model.is_file()):
        return None
    written = store.read_provenance(run.model).get("history")
    if written is None or written == identify(run.history):
        return None
    problem = f"not what the training of {run.model.name} wrote"
    return Fault(run.history, problem, run.name_command("train"))


def _select_causes(run: Run, stage: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return of recorded facts what `Run.list_causes` gives today."""
    now = run.list_causes(stage)
    seed = None if now["seed"] is None else facts["seed"]  # an engine's graph has none
    known: dict[str, Any] = {"plugin": facts.get("plugin"), "seed": seed}
    for key, stored in facts["options"].items():
        whole = key in run.sections and facts.get("plugin") == run.model_info.name
        known[key] = _complete(stored, run.sections[key]) if whole else dict(stored)
    for key in ("profile", "start_from"):
        if key not in now.get("train", {}):
            known.get("train", {}).pop(key, None)
    return known


def _complete(stored: Mapping[str, Any], model: BaseModel) -> dict[str, Any]:
    """Return options of an earlier version with those that have come since, at their defaults."""
    kind = type(model)
    stored = name_former(stored, kind)
    try:
        return kind.model_validate_json(json.dumps(stored)).model_dump(mode="json")
    except ValidationError:
        # What was written is whole, and some options may not be given beside others.
        fields = kind.model_fields.items()
        added = {n: one.get_default(call_default_factory=True) for n, one in fields}
        added = {n: default for n, default in added.items() if n not in stored}
        defaults = kind.model_construct(**added).model_dump(mode="json", include=set(added))
        return {**stored, **defaults}


def _compare_trees(known: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what differs between two trees of options; empty if nothing does."""
    ours, theirs = dict(_flatten(now)), dict(_flatten(known))
    names = sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
    told = [f"{n} {theirs.get(n, 'absent')}, now {ours.get(n, 'absent')}" for n in names]
    return f"made with {_list_some(told, '; ')}" if told else ""


def _compare_inputs(run: Run, stage: str, known: Mapping[str, str]) -> str:
    """Return which inputs have other contents than they had; empty if none has."""
    paths = run.list_inputs(stage)
    changed = [
        f"{paths[name]} has changed since"
        for name, identity in known.items()
        if name in paths and paths[name].is_file() and identify(paths[name]) != identity
    ]
    others = [name for name in known if name not in paths]
    changed += [f"made from {name}, which the run does not read now" for name in others]
    if "start_from" in paths and "start_from" not in known:
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
