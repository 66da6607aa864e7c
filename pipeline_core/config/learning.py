"""The section `learn` of an experiment: rounds in which a model asks for labels."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from pipeline_core.config.datasets import Limits
from pipeline_core.config.sections import (
    Count,
    MolecularDynamics,
    Positive,
    Section,
    require_different,
)


class LabelWith(Section):
    """What computes energy, forces and stress of a structure; one of the first three."""

    cp2k: str | None = None
    """Path of a CP2K input for a single point; its cell and its atoms are replaced."""
    command: str | None = None
    """Command of another code: {structure} stands for the extended-XYZ file that it reads, {label}
    for the one that it writes, with energy (eV), forces (eV/Å) and stress (eV/Å³, tension
    positive), {threads} for the cores that it may use."""
    calculator: str | None = None
    """Name of a calculator of ASE that needs no program, such as emt, for trials of the loop."""
    program: str = "cp2k.psmp"
    """How CP2K is started, such as "/usr/bin/mpiexec -n {threads} cp2k.psmp"."""
    parameters: dict[str, Any] = {}
    """Arguments of the calculator."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [n for n in ("cp2k", "command", "calculator") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                f"label_with: name one of cp2k, command and calculator (given: "
                f"{', '.join(given) or 'none'})"
            )
        if self.command is not None:
            for word in ("{structure}", "{label}"):
                if word not in self.command:
                    raise ValueError(
                        f"label_with.command: has to hold the word {word}, which stands for a file"
                    )
        return self


class PickLimits(Limits):
    """What a structure may be that is labelled: narrower limits than those of data."""

    distance: Positive | None = 0.6
    """Of two atoms, over the sum of their covalent radii, at least."""
    force: Positive | None = 50.0
    """eV/Å, of the mean of the committee."""


class LearnOptions(Section):
    """Rounds of exploring, picking, labelling and training on."""

    rounds: Count
    """How many, known beforehand; more of them later go on where the last one ended."""
    per_round: Count
    """Structures that are labelled in each round."""
    label_with: LabelWith
    """Who labels them."""
    md: Annotated[list[MolecularDynamics], Field(min_length=1)]
    """Dynamics that explore, as in `infer.md`; each round begins them anew with its own committee
    and other velocities. One that breaks down gives the frames until then."""
    distance: Positive = 0.2
    """Å: root mean square displacement of the atoms between two picks, or a pick and a sample of
    the dataset with the same atoms, at least. It is halved until there are enough picks."""
    limits: PickLimits = PickLimits()
    """Structures beyond them are refused."""
    random: bool = False
    """Whether as many structures are also picked at random, from the dynamics of one model of their
    own, to see what the committee is worth. That doubles the labels."""
    train: dict[str, Any] = {}
    """What trainings of rounds have otherwise than the first one, such as fewer epochs."""
    threads: Count = 1
    """Cores of each label: as many threads (OMP_NUM_THREADS) or, where the word {threads} stands in
    `label_with`, one thread and what is made of the word, such as processes."""

    @field_validator("md")
    @classmethod
    def _check_md(cls, md: list[MolecularDynamics]) -> list[MolecularDynamics]:
        for one in md:
            if one.uncertainty is not None:
                raise ValueError(
                    f"{one.name!r} has limits of uncertainty, but a round wants what its committee "
                    "does not know; remove `uncertainty`, and see `learn.limits`"
                )
        require_different([one.name for one in md])
        return md
