"""Consistency of the parts of an experiment, checked from its files alone.

Each section has been validated on its own. A mistake found here would otherwise stop a stage,
perhaps after hours of other stages.
"""

import re
from itertools import chain
from pathlib import Path

from pipeline_core.config.experiments import BASE
from pipeline_core.config.sections import LossTerm, TrainOptions
from pipeline_core.config.yaml_files import find_line
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.run import Run
from pipeline_core.suggestions import suggest
from pipeline_core.units import DIMENSION, find_factor


def require_consistent(run: Run, path: Path) -> None:
    """Check a run for mistakes that no single section shows.

    Args:
        run: One variant of an experiment.
        path: The file of the experiment, for messages.

    Raises:
        ValueError: The plugin refuses its sections together; a term of the loss names a field that
            the model does not predict or the dataset does not hold, or has an unknown unit.
    """
    try:
        if run.model_info.check is not None:
            run.model_info.check(run.sections)
        train = run.sections["train"]
        for name, term in (train.loss if isinstance(train, TrainOptions) else {}).items():
            _check_term(run, name, term)
        run.registry.select_hook("check", run.model_info.name)(run=run)
    except ValueError as error:
        raise ValueError(f"{_locate(run, path, str(error))}: {error}") from None


def _locate(run: Run, path: Path, message: str) -> str:
    """Return file and line of the key that begins a message, within the variant if it has one."""
    key = re.match(r"\w+(\.\w+)*", message)
    keys = key[0].split(".") if key else []
    variant = re.sub(r"\.\d+$", "", run.variant) if run.file.members > 1 else run.variant
    line = find_line(path, keys if variant == BASE else ["variants", variant, *keys])
    return f"{path}:{line}" if line else str(path)


def _check_term(run: Run, name: str, term: LossTerm) -> None:
    key, info = f"train.loss.{name}", run.model_info
    if info.predicts and name not in info.predicts:
        raise ValueError(
            f"{key}: plugin {info.name!r} predicts {', '.join(info.predicts)} only"
            f"{suggest(name, info.predicts) or ';'} remove the term or correct its name"
        )
    labels = list_labels(run.dataset) if run.dataset is not None else None
    if labels is not None and name not in labels:
        assert run.dataset is not None
        raise ValueError(
            f"{key}: {run.dataset.path} does not hold it (labels: {', '.join(labels) or 'none'}); "
            "remove the term, or add the label there"
        )
    if term.unit is not None and name in DIMENSION:
        try:
            find_factor(DIMENSION[name], term.unit)
        except ValueError as error:
            raise ValueError(f"{key}.unit: {error}") from None


def list_labels(dataset: DatasetRun) -> list[str] | None:
    """Return the labels of a dataset; of a mixture, the labels of all its parts.

    None for data that a plugin makes, whose labels are unknown here.
    """
    labels = [
        getattr(one.options, "labels", None) if one.options.plugin is None else None
        for one in dataset.parts
    ]
    if None in labels:
        return None
    return list(dict.fromkeys(chain.from_iterable(filter(None, labels))))
