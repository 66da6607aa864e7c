"""A round of active learning: its picks, its labels, and their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pipeline_core.config.learning import LearnOptions

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
