"""Rounds of active learning as variants of an experiment.

Their number is fixed beforehand, so that they are ordinary runs, chained by files: a round starts
from the models of the round before, and its dataset is the previous one with its own labels. For
`members: 2`, `rounds: 2` and `random: true` there are

| variant             | starts from              | dataset                   |
|---------------------|--------------------------|---------------------------|
| base, base.2        | nothing                  | dataset of the experiment |
| round_1, round_1.2  | base, base.2             | with the picks of round 1 |
| round_2, round_2.2  | round_1, round_1.2       | with the picks of both    |
| random_1, random_2  | base, random_1           | with as many random ones  |

The committee of a round explores and picks for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pipeline_core.config.datasets import (
    LabelledFrames,
    Mixture,
    MixturePart,
    Source,
    Split,
    Structures,
)
from pipeline_core.config.experiments import BASE, ExperimentFile, Variant, name_member
from pipeline_core.config.learning import LearnOptions
from pipeline_core.project.consistency import list_labels
from pipeline_core.project.dataset_run import DatasetRun
from pipeline_core.project.round_run import LABELS, Arm, Round
from pipeline_core.project.run import Run

_PART: Final = "labelled"
"""The part of a dataset that holds the labels of all rounds."""


def add_rounds(file: ExperimentFile, path: Path) -> ExperimentFile:
    """Return an experiment with the variants of its rounds; unchanged if it has none.

    Args:
        file: The experiment.
        path: Its file, for messages.

    Raises:
        ValueError: A variant has the name of a round.
    """
    if file.learn is None:
        return file
    added = dict(_make_variants(file, file.learn))
    taken = sorted(added.keys() & file.variants.keys())
    if taken:
        raise ValueError(f"{path}: variants.{taken[0]}: is a round of `learn`; rename the variant")
    return file.model_copy(update={"variants": {**added, **file.variants}})


def _make_variants(file: ExperimentFile, learn: LearnOptions) -> Iterator[tuple[str, Variant]]:
    # Only the first and the last model are used for more than picking.
    unused: dict[str, list[Any]] = {
        key: [] for key, value in file.infer.items() if isinstance(value, list)
    }
    for arm in _list_arms(learn):
        for number in range(1, learn.rounds + 1):
            start = f"variant:{_name_round(arm, number - 1)}"
            content: dict[str, Any] = {"train": {**learn.train, "start_from": start}}
            if arm == "random":
                content["members"] = 1
            if unused and (arm == "random" or number < learn.rounds):
                content["infer"] = unused
            yield _name_round(arm, number), Variant.model_validate(content)


def _list_arms(learn: LearnOptions) -> list[Arm]:
    return ["round", "random"] if learn.random else ["round"]


def _name_round(arm: Arm, number: int) -> str:
    return f"{arm}_{number}" if number else BASE


def attach_rounds(runs: Mapping[str, Run], file: ExperimentFile, path: Path) -> dict[str, Run]:
    """Return the runs of an experiment, those of rounds with their datasets.

    Args:
        runs: By variant.
        file: The experiment, with its rounds.
        path: Its file, for messages.

    Raises:
        ValueError: The model is not a potential, or its data are not imported by the engine.
    """
    attached, learn = dict(runs), file.learn
    if learn is None:
        return attached
    base = runs[BASE]
    _require_potential(base, path)
    for arm in _list_arms(learn):
        n_members = 1 if arm == "random" else file.members
        for number in range(1, learn.rounds + 1):
            name, before = _name_round(arm, number), _name_round(arm, number - 1)
            explorers = tuple(name_member(before, m) for m in range(1, n_members + 1))
            one = Round(number, arm, learn, before, explorers, runs[name].folder)
            data = _grow(base, learn, arm, number)
            for member in (name_member(name, m) for m in range(1, n_members + 1)):
                attached[member] = replace(runs[member], dataset=data)
            attached[name] = replace(attached[name], round=one)
    return attached


def _require_potential(base: Run, path: Path) -> None:
    dataset = base.dataset
    if "forces" not in base.model_info.predicts:
        raise ValueError(
            f"{path}: learn: plugin {base.model_info.name!r} predicts no forces, so its model "
            "cannot explore; remove the section"
        )
    if dataset is None or dataset.options.plugin or not isinstance(dataset.options, Structures):
        raise ValueError(
            f"{path}: learn: needs a dataset of structures that the engine imports; name one by "
            "the key `dataset`"
        )


def _grow(base: Run, learn: LearnOptions, arm: Arm, number: int) -> DatasetRun:
    """Return the dataset of a round: the experiment's, with the labels up to this round."""
    dataset, name = base.dataset, _name_round(arm, number)
    assert dataset is not None
    assert isinstance(dataset.options, Structures)
    home, labels = base.folder.parent, list_labels(dataset) or []
    earlier = [_name_round(arm, n) for n in range(1, number + 1)]
    # Listed one by one: the folder may hold labels of more structures than are needed now.
    files = [f"{one}/labels/{i}.extxyz" for one in earlier for i in range(learn.per_round)]
    part = LabelledFrames(
        description=f"Picks of {', '.join(earlier)}, labelled",
        sources=[Source(path=file, split="train") for file in files],
        split=Split(val=0, test=0),
        files=files,
        labels=[label for label in LABELS if label in labels],
    )
    experiment = base.experiment
    labelled = DatasetRun(_PART, home / _PART, part, home / name, dataset.registry)
    mixed = (*dataset.parts, labelled)
    return DatasetRun(
        name=f"{experiment}/{name}",
        path=dataset.path,
        options=Mixture(
            description=f"{dataset.name} and {part.description[0].lower()}{part.description[1:]}",
            citation=dataset.options.citation,
            licence=dataset.options.licence,
            reference_energies=dataset.options.reference_energies,
            max_reference_energy=dataset.options.max_reference_energy,
            parts=[MixturePart(dataset=one.name) for one in mixed],
        ),
        folder=home / name,
        registry=dataset.registry,
        mixed=mixed,
        grows=f"--experiment {experiment} --variant {name}",
    )
