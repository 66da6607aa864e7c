"""Training checkpoint: model, optimizer, schedule, EMA, sampler, RNG; for bit-exact resume.

A state is valid for the facts that determine the result: data, model, seed, source of the plugin
and options of the training. If any of these has changed, the training starts afresh.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipeline_core.artifacts import upgrades
from pipeline_core.artifacts.seals import identify
from pipeline_core.config.renamed import upgrade_options
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.model_info import ModelInfo, Upgrade
from pipeline_core.project.run import Run
from pipeline_core.training.divergence import CURES, has_diverged
from pipeline_core.training.history import Record
from pipeline_core.training.model_file import (
    check_probe,
    list_plugin_steps,
    load_archive,
    save_archive,
)

NOTE: Final = "diverged.json"
"""Beside a state after which the training diverged."""
_SOURCE: Final = "plugin source"
"""The fact that always differs for a state of an earlier version."""


@dataclass
class Progress:
    """Progress of a training.

    Attributes:
        epoch: Finished epochs.
        step: Finished steps of the epoch after them.
        best_loss: Lowest loss so far.
        best_epoch: Epoch of the lowest loss, from 1; 0 before the first.
        best_weights: Weights after the best epoch, on the CPU; on rank 0 only.
        history: Lines of the finished epochs.
        changes: Changes after divergences: the first epoch with them, and the values of each fact
            before and after.
        elapsed: Time of the training over all its starts, s.
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
    """Return the facts that a state of this run depends on: name -> value as text.

    The number of epochs and the time limit are left out, so that a training can be prolonged,
    unless the learning rate depends on them. `train.profile` is left out, too.
    """
    facts = dict(_flatten(run.select_params("train")))
    facts.pop("train.profile", None)
    if options.schedule.name != "cosine":
        for name in ("train.epochs", "train.minutes"):
            facts.pop(name, None)
    source = run.registry.compute_fingerprint(run.model_info.name)
    return {**facts, "seed": str(run.seed), _SOURCE: source, **hash_inputs(run, options)}


def hash_inputs(run: Run, options: TrainOptions) -> dict[str, str]:
    """Return file name -> identity of the files that the training reads."""
    inputs = [run.graph] if run.dataset is None else [run.data, run.graph]
    if options.start_from is not None:
        inputs.append(Path(options.start_from))
    return {path.name: identify(path) for path in inputs if path.is_file()}


def describe_model(
    run: Run, begun: Mapping[str, Any], ranks: Ranks, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the provenance of a trained model.

    Args:
        run: The run.
        begun: `run.make_provenance("train")` as it was when the training began: its inputs may be
            replaced meanwhile.
        ranks: Ranks that trained.
        progress: Progress of the training; None for a training without epochs.
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
    """Result of the comparison of a saved state with the experiment.

    Attributes:
        obstacle: Reason why the state cannot be continued; None if it can.
        changes: Facts that differ, as they may: name -> value before and value now.
    """

    obstacle: str | None = None
    changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def compare_state(
    path: Path, info: ModelInfo, facts: Mapping[str, str], epochs: int, module: nn.Module
) -> Resumption:
    """Compare a saved state with the run that is to continue it.

    Args:
        path: The state, which exists.
        info: The model.
        facts: Facts of the run, from `resume_key`.
        epochs: Length of the training now.
        module: On the CPU, as the plugin builds it; left unchanged.
    """
    try:
        state = load_state(path, info)
    except ValueError as error:
        return Resumption(str(error))
    # An option added since the state was saved had its default then.
    later = {name: fact for name, fact in _list_defaults(info).items() if name in facts}
    moved = _list_moved(info)
    then = {moved.get(name, name): fact for name, fact in state["facts"].items()}
    then.pop("", None)
    saved = {_SOURCE: facts[_SOURCE], **later, **then}
    changed = sorted(k for k in saved.keys() | facts.keys() if saved.get(k) != facts.get(k))
    done, step = state["progress"]["epoch"], state["progress"]["step"]
    may_change = CURES if has_diverged(path.with_name(NOTE), done, step) else ()
    obstacles = [name for name in changed if name not in may_change]
    if obstacles:
        return Resumption(f"{path}: saved with another {', '.join(obstacles)}")
    if done > epochs:
        return Resumption(f"{path}: saved with {done} epochs, more than the {epochs} requested")
    if obstacle := _find_other_predictions(state, module, path):
        return Resumption(obstacle)
    return Resumption(None, {k: (saved.get(k, "none"), facts.get(k, "none")) for k in changed})


def _find_other_predictions(state: Mapping[str, Any], module: nn.Module, path: Path) -> str | None:
    """Return the deviation of predictions with the saved weights from the stored ones, if any."""
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
        "format": upgrades.STATE.current,
        "plugin_version": info.version,
    }
    save_archive(path, {**versions, **content}, {})


def load_state(path: Path, info: ModelInfo) -> dict[str, Any]:
    """Read a state, upgraded to the present version.

    Raises:
        ValueError: The file is missing, damaged, or of a later version.
    """
    state = load_archive(path, "all nodes must see one results folder")
    with explain_misfit(path):
        for change in upgrades.STATE.list_steps(state["format"], str(path)):
            state = change(state)
        for step in list_plugin_steps(state, info, path):
            state = _upgrade_weights(step, state)
        Progress(**state["progress"])
        state["facts"].items(), state["learner"].items()
    return state


@contextmanager
def explain_misfit(path: Path) -> Iterator[None]:
    """Convert errors due to unexpected content of a state into a ValueError with the cure.

    Raises:
        ValueError: The content differs from what this version saves.
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
    """Upgrade the three sets of weights of a state, and the batch of its probe."""
    learner, progress, prefix = state["learner"], state["progress"], "module."
    average = learner.get("average")
    if average is not None:  # as torch's AveragedModel keeps it
        inner = {n.removeprefix(prefix): t for n, t in average.items() if n.startswith(prefix)}
        others = {n: t for n, t in average.items() if not n.startswith(prefix)}
        average = others | {prefix + n: t for n, t in step.weights(inner).items()}
    best, probe = progress["best_weights"], state["probe"]
    return {
        **state,
        "facts": {name: fact for name, fact in state["facts"].items() if name != _SOURCE},
        "learner": {**learner, "module": step.weights(learner["module"]), "average": average},
        "progress": {**progress, "best_weights": best and step.weights(best)},
        "probe": {**probe, "batch": step.batch(probe["batch"])},
    }


def _list_defaults(info: ModelInfo) -> dict[str, str]:
    """Return the defaults of the model's and the training's options as facts, if they have one.

    For an option of `Section.formerly`, its value there.
    """
    kinds = {key: info.section_models[key] for key in ("model", "train")}
    former = {key: kind.model_construct(**upgrade_options({}, kind)) for key, kind in kinds.items()}
    return dict(
        _flatten({k: one.model_dump(mode="json", warnings=False) for k, one in former.items()})
    )


def _list_moved(info: ModelInfo) -> dict[str, str]:
    """Return former -> current names of facts; empty ones where another section has them now."""
    return {
        f"{key}.{old}": "" if "." in new else f"{key}.{new}"
        for key, kind in info.section_models.items()
        for old, new in getattr(kind, "moved", {}).items()
    }


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, repr(value)
