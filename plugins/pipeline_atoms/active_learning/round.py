"""A round of active learning: its picks, its labels, and their files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pipeline_atoms.config.learning import LearnOptions
from pipeline_core.config.experiments import BASE, ExperimentFile, name_member
from pipeline_core.config.yaml_files import validate_content
from pipeline_core.project.run import Run

Arm = Literal["round", "random"]
"""Rule by which a round picks structures, and prefix of its variants' names: the spread of a
committee, or chance."""

LABELS: Final = ("energy", "forces", "stress")
"""Fields to be labelled, of those that the dataset has."""


@dataclass(frozen=True)
class Round:
    """A round of active learning.

    Attributes:
        number: Number of the round, from 1.
        arm: How it picks.
        options: The section `learn`.
        before: The variant whose dataset it extends.
        explorers: The variants whose models explore: a committee, or a single one for random picks.
        folder: Folder of the run, which also holds picks and labels.
    """

    number: int
    arm: Arm
    options: LearnOptions
    before: str
    explorers: tuple[str, ...]
    folder: Path

    @property
    def picks(self) -> Path:
        """The picked structures (extended XYZ)."""
        return self.folder / "picks.extxyz"

    @property
    def report(self) -> Path:
        """Report of the picks: structures, models and reasons (JSON)."""
        return self.folder / "picks.json"

    @property
    def labels(self) -> list[Path]:
        """One file per pick: the structure with its labels (extended XYZ)."""
        return [self.folder / "labels" / f"{i}.extxyz" for i in range(self.options.per_round)]


def read_learn_options(file: ExperimentFile, path: Path) -> LearnOptions | None:
    """Return the section `learn` of an experiment; None if it has none.

    Raises:
        ValueError: A key or a value is wrong.
    """
    if file.learn is None:
        return None
    return validate_content(LearnOptions, file.learn, path, ["learn"])


def name_round(arm: Arm, number: int) -> str:
    """Return the name of a round's variant; of the base, on which the first one builds, for 0."""
    return f"{arm}_{number}" if number else BASE


def list_rounds(learn: LearnOptions) -> dict[str, tuple[Arm, int]]:
    """Return the rounds: name of the variant to rule of picking and number."""
    arms: list[Arm] = ["round", "random"] if learn.random else ["round"]
    numbers = range(1, learn.rounds + 1)
    return {name_round(arm, number): (arm, number) for arm in arms for number in numbers}


def find_round(run: Run) -> Round | None:
    """Return the round whose picks and labels come before the training of a run, if it is one.

    None for members of a committee other than the first.
    """
    learn = read_learn_options(run.file, Path())
    if learn is None or run.variant not in (rounds := list_rounds(learn)):
        return None
    arm, number = rounds[run.variant]
    before, members = name_round(arm, number - 1), range(1, run.file.members + 1)
    explorers = tuple(name_member(before, member) for member in members)
    return Round(number, arm, learn, before, explorers, run.folder)


def require_round(run: Run) -> Round:
    """Return the round of a run.

    Raises:
        ValueError: The run is not a round, or a member of a committee other than the first.
    """
    one = find_round(run)
    if one is None:
        raise ValueError(
            f"{run.experiment}: the variant {run.variant!r} picks nothing; name a round of the "
            "section `learn`, such as round_1"
        )
    return one
