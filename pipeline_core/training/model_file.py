"""Model file `model.pt`: trained weights, metadata to rebuild the module, stored predictions.

During a training, `state/best.pt` is such a file for its best epoch so far (`trained_model`). The
file is a torch archive without pickled code, with checksum and provenance (`artifacts.seals`).
Its keys:

=======================  ====================================================================
key                      content
=======================  ====================================================================
`format`                 version of the engine's part
`plugin`                 name of the model
`plugin_version`         version of `metadata` and of the names in `weights`
`metadata`               `Task.metadata`
`weights`                state of the module after its best epoch; its EMA with `ema_decay`
`dtype`                  type of the parameters, such as "float32"
`elements`               `metadata["elements"]`, chemical symbols it was trained on; or empty
`experiment`, `variant`  the run
`probe`                  `batch` of a few samples, with their `split` and `numbers`, or of
                         `Task.probe`; `outputs`, computed on the CPU
=======================  ====================================================================
"""

import json
import pickle
import struct
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import IO, Any, Final, cast

import torch
from torch import Tensor, nn

from pipeline_core.artifacts import upgrades
from pipeline_core.artifacts.store import open_content, read_provenance, write_sealed
from pipeline_core.batch import Batch
from pipeline_core.model_info import ModelInfo, Upgrade
from pipeline_core.project.run import Run
from pipeline_core.task import Outputs, Task
from pipeline_core.training.balance.sampler import Numbers
from pipeline_core.training.card import make_card

_KEYS: Final = {"plugin", "metadata", "weights", "dtype", "elements", "probe"}
_TOLERANCE: Final = {"float32": 1e-4, "float64": 1e-9}
"""Largest deviation from a stored prediction, relative to the largest one of its field."""
_NOISE: Final = {"float32": 1e-5, "float64": 1e-12}
"""Deviation that is ignored: forces that vanish by symmetry are rounding errors."""
_DAMAGE: Final = (
    *(OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError),
    *(pickle.UnpicklingError, struct.error),
)
"""Exceptions from reading something else than an archive."""


def write_model(
    run: Run,
    task: Task,
    weights: Mapping[str, Tensor],
    probe: tuple[str, Numbers],
    provenance: Mapping[str, Any],
) -> None:
    """Write `run.model` atomically.

    Args:
        run: The run.
        task: Its task; the module is moved to the CPU and given the weights.
        weights: State of the module.
        probe: Split and numbers of the samples whose predictions are stored if the task has no
            probe of its own.
        provenance: Provenance of the model; a card is added (`training.card`).
    """
    module = task.module.cpu()
    module.load_state_dict(weights)
    facts = {**provenance, "card": make_card(run, task)}
    trained = module, task.metadata or {}, make_probe(task, *probe)
    save_model(run.model, run.model_info, (run.experiment, run.variant), trained, facts)


def save_model(
    path: Path,
    info: ModelInfo,
    names: tuple[str, str],
    trained: tuple[nn.Module, Mapping[str, Any], Mapping[str, Any]],
    facts: Mapping[str, Any],
) -> None:
    """Write a model file atomically.

    Args:
        path: The file.
        info: The plugin.
        names: Experiment and variant.
        trained: A module with the weights, on the CPU, the metadata to rebuild it, and a probe as
            from `make_probe`.
        facts: Provenance of the model, with its card.
    """
    module, metadata, probe = trained
    content = {
        "format": upgrades.MODEL.current,
        "plugin": info.name,
        "plugin_version": info.version,
        "metadata": dict(metadata),
        "weights": module.state_dict(),
        "dtype": name_dtype(module),
        "elements": list(metadata.get("elements", [])),
        "experiment": names[0],
        "variant": names[1],
        "probe": predict_probe(module, probe),
    }
    save_archive(path, content, facts)


def make_probe(task: Task, split: str, numbers: Numbers) -> dict[str, Any]:
    """Return a few samples, for predictions to check a rebuilt module by.

    Args:
        task: The task; its own probe is used if it has one.
        split: Split of the samples otherwise.
        numbers: Their numbers.

    Returns:
        `batch`, on the CPU, and `split` and `numbers` of its samples.
    """
    if task.probe is None:
        batch = task.samples(split).batch(numbers.tolist())
        return {"split": split, "numbers": numbers.tolist(), "batch": batch}
    with torch.random.fork_rng(
        devices=[]
    ):  # so that the training draws the same numbers as without it
        return {"batch": task.probe()}


def predict_probe(module: nn.Module, probe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a probe with the `outputs` of a module, which is on the CPU."""
    return {**probe, "outputs": _predict(module, probe["batch"])}


def name_dtype(module: nn.Module) -> str:
    """Return the type of a module's parameters, such as "float32"."""
    return str(next(module.parameters()).dtype).removeprefix("torch.")


def load_model(path: Path, info: ModelInfo | None = None) -> dict[str, Any]:
    """Read a `model.pt`, tensors on the CPU, upgraded to the present version.

    Args:
        path: The file.
        info: Gives upgrades of metadata and weights; None to leave them unchanged.

    Raises:
        ValueError: The file is missing, damaged, not a model, or of a later version.
    """
    content = load_archive(path, "run the stage 'train' first")
    version = content.get("format")
    if not isinstance(version, int) or not content.keys() >= _KEYS:
        raise ValueError(f"{path}: not a model; give the path of a model.pt")
    content["provenance"] = json.dumps(read_provenance(path), sort_keys=True)
    for step in upgrades.MODEL.list_steps(version, str(path)):
        content = step(content)
    return content if info is None else upgrade_model(content, info, path)


def upgrade_model(content: dict[str, Any], info: ModelInfo, path: Path) -> dict[str, Any]:
    """Bring metadata, weights and probe of a loaded model to the version of its plugin.

    Args:
        content: Result of `load_model`.
        info: The plugin.
        path: The file, for messages.

    Raises:
        ValueError: They are of a later version, or of another plugin.
    """
    if content["plugin"] != info.name:
        raise ValueError(
            f"{path}: a model of the plugin {content['plugin']!r}, and not of {info.name!r}; give "
            "the path of one of these, or train one"
        )
    for step in list_plugin_steps(content, info, path):
        probe = content["probe"]
        content = {
            **content,
            "metadata": step.metadata(content["metadata"]),
            "weights": step.weights(content["weights"]),
            "probe": {**probe, "batch": step.batch(probe["batch"])},
        }
    return content


def list_plugin_steps(content: Mapping[str, Any], info: ModelInfo, path: Path) -> list[Upgrade]:
    """Return the conversions of the plugin's part of a model or a state, in order.

    Raises:
        ValueError: It is of a later version, or has no conversion.
    """
    versions = upgrades.Versions(info.version, info.upgrades)
    place = f"{path}: the part of the plugin {info.name!r}"
    return versions.list_steps(content["plugin_version"], place)


def save_archive(path: Path, content: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write a torch archive atomically, with a seal.

    Args:
        path: The file.
        content: Tensors and plain values.
        facts: Provenance, JSON-able.

    Raises:
        ValueError: The file cannot be written.
    """
    with write_sealed(path, facts) as file:
        torch.save(dict(content), file)


def load_archive(path: Path, cure: str) -> dict[str, Any]:
    """Read a torch archive that holds a dict of tensors and plain values, checksums included.

    Raises:
        ValueError: The file is missing (the message ends in `cure`) or damaged.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file; {cure}")
    with open_content(path) as file:
        file.check()
        try:
            content = torch.load(cast("IO[bytes]", file), map_location="cpu", weights_only=True)
            if isinstance(content, dict):
                return content
            problem = "content"
        except _DAMAGE as error:
            problem = (str(error).splitlines() or [type(error).__name__])[0]
    raise ValueError(
        f"{path}: truncated, damaged or not written by this package ({problem}); remove it and run "
        "its stage again"
    )


def load_weights(module: nn.Module, content: Mapping[str, Any], path: Path) -> None:
    """Set the weights of a module to those of a loaded model.

    Raises:
        ValueError: They do not fit.
    """
    try:
        module.load_state_dict(content["weights"])
    except RuntimeError as error:
        raise ValueError(
            f"{path}: its weights do not fit the module of this experiment: {error}"
            f"{_describe_metadata(content, '; the model was built with {}')}"
        ) from None


def check_probe(module: nn.Module, content: Mapping[str, Any], path: Path) -> None:
    """Check that a fresh module with loaded weights reproduces the stored predictions.

    Args:
        module: On the CPU, as its plugin builds it; left unchanged.
        content: Result of `load_model`.
        path: The file, for messages.

    Raises:
        ValueError: It does not; the largest deviations are listed.
    """
    module = deepcopy(module)
    if content["dtype"] == "float64":
        module.double()
    load_weights(module, content, path)
    outputs, probe = _predict(module, content["probe"]["batch"]), content["probe"]["outputs"]
    relative, noise, worst = _TOLERANCE[content["dtype"]], _NOISE[content["dtype"]], {}
    for name, expected in probe.items():
        deviation = (
            float((outputs[name] - expected).abs().max()) if name in outputs else float("inf")
        )
        largest = float(expected.abs().max())
        if not deviation <= relative * largest + noise:
            worst[name] = f"{name} by {deviation:.3g} of {largest:.3g}"
    if worst:
        raise ValueError(
            f"{path}: with its weights the module does not reproduce the predictions stored beside "
            f"them: {', '.join(worst.values())}; the options of the model or the version of the "
            f"plugin differ from those of the training{_describe_metadata(content, ' ({})')}"
        )


def _describe_metadata(content: Mapping[str, Any], words: str) -> str:
    """Return words with the metadata of a model; empty for a state, which has none."""
    return words.format(content["metadata"]) if "metadata" in content else ""


def _predict(module: nn.Module, batch: Batch) -> Outputs:
    """Predict on the CPU, with the same random numbers each time."""
    module.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return {name: tensor.clone() for name, tensor in module(dict(batch)).items()}
