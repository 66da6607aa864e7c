"""The saved state of a training: everything that continues it to the same end, bit for bit.

A state belongs to what determines the result: data, model, seed, source of the plugin and the
options of the training. If any of these has changed, the training starts afresh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipeline_core import upgrades
from pipeline_core.config.renamed import name_former
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.model_info import ModelInfo, Upgrade
from pipeline_core.run import Run
from pipeline_core.seals import identify
from pipeline_core.training.checkpoint import check_probe, load_archive, save_archive
from pipeline_core.training.divergence import CURES, has_diverged
from pipeline_core.training.history import Record

NOTE: Final = "diverged.json"
"""Beside a state after which the training diverged."""
_SOURCE: Final = "plugin source"
"""The fact that a state of an earlier version cannot share with ours."""


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        epoch: Finished epochs.
        step: Finished steps of the epoch after them.
        best_loss: Least loss so far.
        best_epoch: Epoch, from 1, that had it; 0 before the first.
        best_weights: Weights after it, on the CPU; on rank 0 only.
        history: Lines of the finished epochs.
        changes: What was changed after a divergence: the epoch from which on, and of each fact
            its value before and since.
        elapsed: Time that it took, over all its starts, s.
    """

    epoch: int = 0
    step: int = 0
    best_loss: float = float("inf")
    best_epoch: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[Record] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    elapsed: float = 0.0


def resume_key(run: Run, options: TrainOptions) -> dict[str, str]:
    """Return what a state of this run depends on: name of each fact to its value as text.

    The number of epochs is none of them, so that a training can be prolonged, nor is its time,
    unless the learning rate depends on them. Nor is it whether times are reported.
    """
    facts = dict(_flatten(run.select_params("train")))
    facts.pop("train.profile", None)
    if options.schedule.name != "cosine":
        for name in ("train.epochs", "train.minutes"):
            facts.pop(name, None)
    source = run.registry.compute_fingerprint(run.model_info.name)
    return {**facts, "seed": str(run.seed), _SOURCE: source, **hash_inputs(run, options)}


def hash_inputs(run: Run, options: TrainOptions) -> dict[str, str]:
    """Return file name and identity of what the training reads and the experiment does not say."""
    inputs = [run.graph] if run.dataset is None else [run.data, run.graph]
    if options.start_from is not None:
        inputs.append(Path(options.start_from))
    return {path.name: identify(path) for path in inputs if path.is_file()}


def describe_model(
    run: Run, begun: Mapping[str, Any], ranks: Ranks, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the record of where a trained model comes from.

    Args:
        run: The run.
        begun: `run.make_provenance("train")` as it was when the training began: what it reads may
            be made anew meanwhile.
        ranks: Who trained.
        progress: How far the training has come; None for one that has no epochs.
    """
    course: dict[str, Any] = {}
    if progress is not None:
        course = {"epoch": progress.best_epoch, "epochs": progress.epoch}
        course |= {"changes": progress.changes} if progress.changes else {}
    return {
        **begun,
        **course,
        "history": identify(run.history) if run.history.is_file() else None,
        "ranks": ranks.size,
        "threads": torch.get_num_threads(),
        "device": ranks.device.type,
    }


@dataclass(frozen=True)
class Resumption:
    """How a saved state and the experiment fit together.

    Attributes:
        obstacle: Why the state cannot be continued; None if it can.
        changes: Facts that may differ and do: name to value before and value now.
    """

    obstacle: str | None = None
    changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def compare_state(
    path: Path, info: ModelInfo, facts: Mapping[str, str], epochs: int, module: nn.Module
) -> Resumption:
    """Return whether a saved state can be continued, and why not.

    Args:
        path: The state, which exists.
        info: The model.
        facts: What a state of the run depends on, as `resume_key` returns it.
        epochs: Length of the training now.
        module: On the CPU, as the plugin builds it; left unchanged.
    """
    try:
        state = load_state(path, info)
    except ValueError as error:
        return Resumption(str(error))
    # An option that has come since the state was saved had its default then.
    later = {name: fact for name, fact in _list_defaults(info).items() if name in facts}
    moved = _list_moved(info)
    then = {name: fact for name, fact in state["facts"].items() if name not in moved}
    saved = {_SOURCE: facts[_SOURCE], **later, **then}
    changed = sorted(k for k in saved.keys() | facts.keys() if saved.get(k) != facts.get(k))
    done, step = state["progress"]["epoch"], state["progress"]["step"]
    may_change = CURES if has_diverged(path.with_name(NOTE), done, step) else ()
    obstacles = [name for name in changed if name not in may_change]
    if obstacles:
        return Resumption(f"{path}: saved with another {', '.join(obstacles)}")
    if done > epochs:
        return Resumption(f"{path}: saved with {done} epochs, more than the {epochs} asked for")
    if obstacle := _find_other_predictions(state, module, path):
        return Resumption(obstacle)
    return Resumption(None, {k: (saved.get(k, "none"), facts.get(k, "none")) for k in changed})


def _find_other_predictions(state: Mapping[str, Any], module: nn.Module, path: Path) -> str | None:
    """Return in which predictions a module with the saved weights differs from what it gave."""
    if "probe" not in state:  # earlier versions saved none
        return None
    try:
        with explain_misfit(path):
            content = {key: state[key] for key in ("dtype", "probe")}
            check_probe(module, {**content, "weights": state["learner"]["module"]}, path)
    except ValueError as error:
        return str(error)
    return None


def save_state(path: Path, info: ModelInfo, content: Mapping[str, Any]) -> None:
    """Write a state atomically."""
    versions = {
        "format": upgrades.count_version(upgrades.STATE),
        "plugin_version": upgrades.count_version(info.upgrades),
    }
    save_archive(path, {**versions, **content}, {})


def load_state(path: Path, info: ModelInfo) -> dict[str, Any]:
    """Read a state; one of an earlier version becomes one of today.

    Raises:
        ValueError: The file is missing, damaged, or of a later version.
    """
    state = load_archive(path, "all nodes must see one results folder")
    with explain_misfit(path):
        state = upgrades.upgrade(state, state.get("format", 0), upgrades.STATE, str(path))
        steps = {number: partial(_upgrade_weights, step) for number, step in info.upgrades.items()}
        place = f"{path}: the part of the plugin {info.name!r}"
        state = upgrades.upgrade(state, state["plugin_version"], steps, place)
        Progress(**state["progress"])
        state["facts"].items(), state["learner"].items()
    return state


@contextmanager
def explain_misfit(path: Path) -> Iterator[None]:
    """Turn the errors that a state of unexpected content leads to into one with the cure.

    Raises:
        ValueError: The content is not what this version saves.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, RuntimeError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"{path}: not a state that this version of the package can continue "
            f"({type(error).__name__}: {first}); remove the file, and the training starts afresh, "
            "or install the version that wrote it"
        ) from error


def _upgrade_weights(step: Upgrade, state: dict[str, Any]) -> dict[str, Any]:
    """Upgrade the three places in which a state holds weights, and the batch of its probe."""
    learner, progress, prefix = state["learner"], state["progress"], "module."
    average = learner.get("average")
    if average is not None:  # as torch's AveragedModel keeps it
        inner = {n.removeprefix(prefix): t for n, t in average.items() if n.startswith(prefix)}
        others = {n: t for n, t in average.items() if not n.startswith(prefix)}
        average = others | {prefix + n: t for n, t in step.weights(inner).items()}
    best, probe = progress["best_weights"], state.get("probe")
    return {
        **state,
        "facts": {name: fact for name, fact in state["facts"].items() if name != _SOURCE},
        "learner": {**learner, "module": step.weights(learner["module"]), "average": average},
        "progress": {**progress, "best_weights": best and step.weights(best)},
        **({"probe": {**probe, "batch": step.batch(probe["batch"])}} if probe else {}),
    }


def _list_defaults(info: ModelInfo) -> dict[str, str]:
    """Return the defaults of the model's and the training's options as facts, if they have one.

    Of an option whose default has changed, the former one.
    """
    kinds = {key: info.section_models[key] for key in ("model", "train")}
    former = {key: kind.model_construct(**name_former({}, kind)) for key, kind in kinds.items()}
    return dict(
        _flatten({k: one.model_dump(mode="json", warnings=False) for k, one in former.items()})
    )


def _list_moved(info: ModelInfo) -> set[str]:
    """Return the names of facts that earlier versions had of options that stand elsewhere now."""
    kinds = info.section_models.items()
    return {f"{key}.{name}" for key, kind in kinds for name in getattr(kind, "moved", {})}


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, repr(value)
