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

from pathlib import Path
from typing import Any, Final

from pipeline_atoms.active_learning.round import (
    LABELS,
    Arm,
    list_rounds,
    name_round,
    read_learn_options,
)
from pipeline_atoms.config.datasets import (
    LabelledFrames,
    Mixture,
    MixturePart,
    Source,
    Structures,
)
from pipeline_atoms.config.learning import LearnOptions
from pipeline_core.config.datasets import Split
from pipeline_core.config.experiments import ExperimentFile, Variant, name_member
from pipeline_core.project.consistency import list_labels
from pipeline_core.project.run import DatasetRun, Run

_PART: Final = "labelled"
"""The part of a dataset that holds the labels of all rounds."""


def make_variants(file: ExperimentFile, path: Path) -> dict[str, Variant]:
    """Return the variants of the rounds of an experiment, by name.

    Args:
        file: The experiment.
        path: Its file, for messages.

    Raises:
        ValueError: The section `learn` is wrong, or a variant has the name of a round.
    """
    learn = read_learn_options(file, path)
    if learn is None:
        return {}
    rounds = list_rounds(learn)
    taken = sorted(rounds.keys() & file.variants.keys())
    if taken:
        raise ValueError(f"{path}: variants.{taken[0]}: is a round of `learn`; rename the variant")
    return {name: _make_variant(file, learn, *place) for name, place in rounds.items()}


def _make_variant(file: ExperimentFile, learn: LearnOptions, arm: Arm, number: int) -> Variant:
    start = f"variant:{name_round(arm, number - 1)}"
    content: dict[str, Any] = {"train": {**learn.train, "start_from": start}}
    if arm == "random":
        content["members"] = 1
    # Only the first and the last model are used for more than picking.
    unused: dict[str, list[Any]] = {
        key: [] for key, value in file.infer.items() if isinstance(value, list)
    }
    if unused and (arm == "random" or number < learn.rounds):
        content["infer"] = unused
    return Variant.model_validate(content)


def require_rounds(base: Run) -> None:
    """Check that the base of an experiment with rounds can explore and be extended by labels.

    Raises:
        ValueError: The experiment has one member alone, its model is not a potential, or its data
            are not files of structures.
    """
    dataset = base.dataset
    if base.file.members == 1:
        raise ValueError(
            "learn: a committee picks the structures; set `members` to 2 or more, such as 4"
        )
    if "forces" not in base.model_info.predicts:
        raise ValueError(
            f"learn: plugin {base.model_info.name!r} predicts no forces, so its model cannot "
            "explore; remove the section"
        )
    if dataset is None or dataset.options.plugin or not isinstance(dataset.options, Structures):
        raise ValueError(
            "learn: needs a dataset of structures that the engine imports; name one by the key "
            "`dataset`"
        )


def find_dataset(run: Run, base: Run) -> DatasetRun | None:
    """Return the dataset of a round, for all members of its committee; None for other runs."""
    learn = read_learn_options(run.file, Path())
    if learn is None:
        return None
    members = range(1, run.file.members + 1)
    for name, (arm, number) in list_rounds(learn).items():
        if run.variant in [name_member(name, member) for member in members]:
            return _grow(base, learn, arm, number)
    return None


def _grow(base: Run, learn: LearnOptions, arm: Arm, number: int) -> DatasetRun:
    """Return the dataset of a round: the experiment's, with the labels up to this round."""
    dataset, name = base.dataset, name_round(arm, number)
    assert dataset is not None
    assert isinstance(dataset.options, Structures)
    home, labels = base.folder.parent, list_labels(dataset) or []
    earlier = [name_round(arm, n) for n in range(1, number + 1)]
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
