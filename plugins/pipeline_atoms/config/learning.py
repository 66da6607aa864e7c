"""The section `learn` of an experiment: active learning in rounds."""

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from pipeline_atoms.config.datasets import Limits
from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_core.config.sections import Count, Positive, Section, require_different


class LabelWith(Section):
    """Source of the labels energy, forces and stress: one of the first three keys."""

    cp2k: str | None = None
    """Path of a CP2K input for a single point; its cell and its atoms are replaced."""
    command: str | None = None
    """Command of another code: {structure} stands for the extended-XYZ file that it reads, {label}
    for the file that it writes, with energy (eV), forces (eV/Å) and stress (eV/Å³, tension
    positive), {threads} for the cores that it may use."""
    calculator: str | None = None
    """Name of an ASE calculator that needs no program, such as emt, for trials of the loop."""
    program: str = "cp2k.psmp"
    """Command that starts CP2K, such as "/usr/bin/mpiexec -n {threads} cp2k.psmp"."""
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
    """Plausible ranges of structures to label, narrower than the limits of data."""

    distance: Positive | None = 0.6
    """Smallest distance of two atoms, over the sum of their covalent radii."""
    force: Positive | None = 50.0
    """eV/Å: largest force, as the mean of the committee."""


class LearnOptions(Section):
    """Active learning: rounds of exploring, picking, labelling and further training."""

    rounds: Count
    """Number of rounds, fixed beforehand; a larger number later continues after the last one."""
    per_round: Count
    """Structures to label in each round."""
    label_with: LabelWith
    """Source of the labels."""
    md: Annotated[list[MolecularDynamics], Field(min_length=1)]
    """Dynamics that explore, as in `infer.md`; each round starts them again with its own committee
    and other velocities. A run that breaks down contributes its frames until then."""
    distance: Positive = 0.2
    """Å: smallest root mean square displacement of the atoms between two picks, or a pick and a
    sample of the dataset with the same atoms. It is halved until there are enough picks."""
    limits: PickLimits = PickLimits()
    """Structures beyond these limits are not picked."""
    random: bool = False
    """Pick as many structures at random, too, from the dynamics of a single model, as a baseline
    for the committee. That doubles the labels."""
    train: dict[str, Any] = {}
    """Overrides of `train` in the rounds after the first training, such as fewer epochs."""
    threads: Count = 1
    """Cores of each label: as many threads (OMP_NUM_THREADS) or, where the word {threads} stands in
    `label_with`, one thread, with the word replaced by the number, such as of processes."""

    @field_validator("md")
    @classmethod
    def _check_md(cls, md: list[MolecularDynamics]) -> list[MolecularDynamics]:
        for one in md:
            if one.uncertainty is not None:
                raise ValueError(
                    f"{one.name!r} has limits of uncertainty, but active learning needs uncertain "
                    "structures; remove `uncertainty`, and see `learn.limits`"
                )
        require_different([one.name for one in md])
        return md
