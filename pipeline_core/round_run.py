"""A round of a learning experiment: what it picks and labels, and where that lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pipeline_core.config.learning import LearnOptions

Arm = Literal["round", "random"]
"""How a round picks, which its variants are called after: by the spread of a committee, or at
random."""

LABELS: Final = ("energy", "forces", "stress")
"""What is asked of whoever labels, as far as the dataset has it."""


@dataclass(frozen=True)
class Round:
    """A round of a learning experiment.

    Attributes:
        number: From 1.
        arm: How it picks.
        options: The section `learn`.
        before: The variant whose dataset it adds to.
        explorers: The variants whose models explore: a committee, or one where picks are at random.
        folder: Of the run: what is picked and labelled lies there, too.
    """

    number: int
    arm: Arm
    options: LearnOptions
    before: str
    explorers: tuple[str, ...]
    folder: Path

    @property
    def picks(self) -> Path:
        """What has been picked (extended XYZ)."""
        return self.folder / "picks.extxyz"

    @property
    def report(self) -> Path:
        """What was picked, by which models, and why (JSON)."""
        return self.folder / "picks.json"

    @property
    def labels(self) -> list[Path]:
        """One file a pick: it with its labels (extended XYZ)."""
        return [self.folder / "labels" / f"{i}.extxyz" for i in range(self.options.per_round)]
