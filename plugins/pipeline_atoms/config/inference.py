"""The section `infer`: use of a trained potential."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from pydantic import field_validator, model_validator

from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.config.properties import (
    GROUP,
    SECTIONS,
    ElasticOptions,
    EquationOfStateOptions,
    MeltQuenchOptions,
    NebOptions,
    PhononOptions,
    PropertyOptions,
    RelaxOptions,
    SurfaceOptions,
    VacancyOptions,
)
from pipeline_atoms.structure import parse_start
from pipeline_core.config.sections import Section, require_different


class InferOptions(Section):
    """Use of the trained model. Entries of a list have different values of `name`."""

    compile: bool = False
    """True to compile the model for inference, faster on a CPU: MACE and CHGNet."""
    head: str | None = None
    """Head to predict with, such as a level of theory, if the model has several."""
    md: list[MolecularDynamics] = []
    """Molecular dynamics."""
    relax: list[RelaxOptions] = []
    """Relaxed structures."""
    eos: list[EquationOfStateOptions] = []
    """Equations of state."""
    elastic: list[ElasticOptions] = []
    """Elastic constants."""
    phonons: list[PhononOptions] = []
    """Phonons."""
    vacancies: list[VacancyOptions] = []
    """Energies of vacancies."""
    surfaces: list[SurfaceOptions] = []
    """Energies of surfaces."""
    neb: list[NebOptions] = []
    """Energy barriers."""
    melt_quench: list[MeltQuenchOptions] = []
    """Amorphous structures."""

    @property
    def has_work(self) -> bool:
        """True if there is anything to calculate."""
        return bool(self.md) or any(self.list_properties())

    @property
    def files(self) -> list[Path]:
        """Structure files to read."""
        starts = [one.start for one in self.md]
        starts += [start for _, entry in self.list_properties() for start in entry.starts]
        paths = [Path(start) for start in starts if parse_start(start) is None]
        return list(dict.fromkeys(paths))

    def list_properties(self) -> Iterator[tuple[str, PropertyOptions]]:
        """Yield the section and the options of each property."""
        for section in SECTIONS:
            for entry in getattr(self, section):
                yield section, entry

    def refuse_uncertainty(self) -> None:
        """Check that no dynamics has limits of uncertainty, which a single model does not give.

        Raises:
            ValueError: An entry has them.
        """
        limited = [md.name for md in self.md if md.uncertainty is not None]
        if limited:
            raise ValueError(
                f"infer.md: {limited[0]!r} has limits of uncertainty, which one model does not "
                "give; set `members` of the experiment to 4, or remove `uncertainty`"
            )

    def require_head(self, names: Sequence[str]) -> None:
        """Check that a model has the head, if the model is used.

        Args:
            names: Names of its heads. If there is only one, its name does not matter.

        Raises:
            ValueError: It has no such head.
        """
        if self.has_work:
            try:
                find_head(names if len(names) > 1 else (), self.head)
            except ValueError as error:
                raise ValueError(f"infer.head: {error}") from None

    @field_validator("md", *SECTIONS)
    @classmethod
    def _check_names(cls, entries: list[MolecularDynamics]) -> list[MolecularDynamics]:
        require_different([one.name for one in entries])
        return entries

    @model_validator(mode="after")
    def _check_taken(self) -> Self:
        taken = next((md.name for md in self.md if md.name == GROUP), None)
        if taken is not None:
            raise ValueError(f"md: the name {taken!r} is that of other results; choose another one")
        return self


def find_head(names: Sequence[str], name: str | None) -> int:
    """Return the index of a head of a model.

    Args:
        names: Names of its heads; empty for a model with one.
        name: Name of the head.

    Raises:
        ValueError: There is no such head, or there are several and none is named.
    """
    if name is None and not names:
        return 0
    if name in names:
        return names.index(name)
    if not names:
        raise ValueError(
            f"the model has one head, without a name, and no {name!r}; leave the head out"
        )
    problem = "name one of them" if name is None else f"and no {name!r}"
    raise ValueError(
        f"the model has the heads {', '.join(names)}, {problem} (--head of predict and driver, "
        "infer.head of an experiment, load_calculator(head=))"
    )
