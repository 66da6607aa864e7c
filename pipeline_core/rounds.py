"""The rounds of a learning experiment, as variants of it.

Their number is known beforehand, so that they are ordinary runs, chained by files: a round starts
from the models of the round before, and its dataset is the one before with its own labels. For
`rounds: 2`, `members: 2` and `random: true` there are

| variant                      | starts from     | dataset                   |
|------------------------------|-----------------|---------------------------|
| base, base_member_2          | nothing         | that of the experiment    |
| round_1, round_1_member_2    | base and its    | with the picks of round 1 |
| round_2                      | round_1         | with those of both        |
| random_1, random_2           | base, random_1  | with as many random ones  |

The models of a round explore and pick for the next one; the last round needs no committee.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipeline_core.config.datasets import LabelledFrames, Mixture, MixturePart, Source, Structures
from pipeline_core.config.experiments import BASE, ExperimentFile, Variant
from pipeline_core.config.learning import LearnOptions
from pipeline_core.consistency import list_labels
from pipeline_core.dataset_run import DatasetRun
from pipeline_core.round_run import LABELS, Arm, Round
from pipeline_core.run import Run

_PART: Final = "labelled"
"""The labels of all rounds, as a part of their datasets."""


def add_rounds(file: ExperimentFile, path: Path) -> ExperimentFile:
    """Return an experiment with the variants of its rounds; as it is if it has none.

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
    return file.model_copy(update={"variants": {**file.variants, **added}})


def _make_variants(file: ExperimentFile, learn: LearnOptions) -> Iterator[tuple[str, Variant]]:
    # Simulations are those of the first and of the last model.
    no_dynamics = {"infer": {"md": []}} if "md" in file.infer else {}
    for member in range(2, learn.members + 1):
        seed = file.seed + member - 1
        yield name_member(BASE, member), Variant.model_validate({"seed": seed, **no_dynamics})
    for arm in _list_arms(learn):
        for number in range(1, learn.rounds + 1):
            is_last = number == learn.rounds
            for member in range(1, _count_members(learn, arm, number) + 1):
                start = name_member(_name_round(arm, number - 1), member)
                content = {
                    "seed": file.seed + member - 1,
                    "train": {**learn.train, "start_from": f"variant:{start}"},
                    **({} if is_last else no_dynamics),
                }
                name = name_member(_name_round(arm, number), member)
                yield name, Variant.model_validate(content)


def _list_arms(learn: LearnOptions) -> list[Arm]:
    return ["round", "random"] if learn.random else ["round"]


def _count_members(learn: LearnOptions, arm: Arm, number: int) -> int:
    """Return how many models a round trains: a committee if another round asks it."""
    return learn.members if arm == "round" and number < learn.rounds else 1


def _name_round(arm: Arm, number: int) -> str:
    return f"{arm}_{number}" if number else BASE


def name_member(variant: str, member: int) -> str:
    """Return the variant of a member of a committee, counted from 1: the first one leads it."""
    return variant if member == 1 else f"{variant}_member_{member}"


def attach_rounds(
    runs: Mapping[str, Run], learn: LearnOptions | None, path: Path
) -> dict[str, Run]:
    """Return the runs of an experiment, those of rounds with their datasets.

    Args:
        runs: By variant.
        learn: The section `learn`.
        path: The file of the experiment, for messages.

    Raises:
        ValueError: The model is no potential, or its data are not imported by the engine.
    """
    attached = dict(runs)
    if learn is None:
        return attached
    base = runs[BASE]
    _require_potential(base, path)
    for arm in _list_arms(learn):
        for number in range(1, learn.rounds + 1):
            name, before = _name_round(arm, number), _name_round(arm, number - 1)
            n_explorers = learn.members if arm == "round" else 1
            committee = tuple(name_member(before, m) for m in range(1, n_explorers + 1))
            one = Round(number, arm, learn, before, committee, runs[name].folder)
            data = _grow(base, learn, arm, number)
            for member in range(1, _count_members(learn, arm, number) + 1):
                variant = name_member(name, member)
                attached[variant] = replace(runs[variant], dataset=data)
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
    """Return the dataset of a round: that of the experiment, and the labels of rounds until it."""
    dataset, name = base.dataset, _name_round(arm, number)
    assert dataset is not None
    assert isinstance(dataset.options, Structures)
    home, labels = base.folder.parent, list_labels(dataset) or []
    earlier = [_name_round(arm, n) for n in range(1, number + 1)]
    part = LabelledFrames(
        description=f"Picks of {', '.join(earlier)}, labelled",
        sources=[Source(path=f"{one}/labels/*.extxyz", split="train") for one in earlier],
        files=[f"{one}/labels/{i}.extxyz" for one in earlier for i in range(learn.per_round)],
        labels=[label for label in labels if label in LABELS],
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
