"""Properties of materials that the stage `infer` calculates with a trained potential."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline_core.config.sections import Count, NotNegative, Positive, Section
from pipeline_core.fields import parse_start

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
Start = str
"""A sample of the dataset as split:number, or the path of a file that ASE can read."""
Starts = Annotated[list[Start], Field(min_length=1)]
Distortion = Annotated[float, Field(ge=-0.5, le=0.5)]
Strain = Annotated[float, Field(gt=0, lt=0.3)]


def name_structure(start: Start) -> str:
    """Return what a structure is called in results: the stem of its file, or the sample."""
    named = parse_start(start)
    return f"{named[0]} {named[1]}" if named else Path(start).stem


class Relaxation(Section):
    """How a structure is brought to where its forces, and the stress of its cell, vanish."""

    optimizer: Literal["lbfgs", "fire"] = "lbfgs"
    """LBFGS takes fewer steps; FIRE is robust where the start is far from a minimum."""
    cell: bool = True
    """Whether the cell relaxes too; it has to be periodic in three directions."""
    symmetry: bool = True
    """Whether the space group of the start is kept."""
    symmetry_tolerance: Positive = 0.01
    """Å within which atoms of the start are symmetric."""
    pressure: float = 0.0
    """External pressure on a cell that relaxes, GPa."""
    max_force: Positive = 0.001
    """Largest force at the end, eV/Å; and largest stress of a cell that relaxes, eV/Å³."""
    steps: Count = 500
    """Steps after which what has not converged is reported as such."""


class PropertyOptions(Section):
    """What all properties have in common. As an entry of `infer.relax`: the relaxation alone."""

    name: Name
    structures: Starts
    """Samples of the dataset as split:number, or paths of files that ASE can read."""
    relax: Relaxation | None = Relaxation()
    """How the structures are relaxed before; null to take them as they are."""

    @property
    def starts(self) -> list[Start]:
        """All structures that are read."""
        return self.structures

    @field_validator("structures")
    @classmethod
    def _check_structures(cls, structures: list[str]) -> list[str]:
        names = [name_structure(start) for start in structures]
        same = next((name for name in names if names.count(name) > 1), None)
        if same is not None:
            raise ValueError(
                f"structures: two are called {same!r}, and so would their results; "
                "rename one of the files"
            )
        return structures


class RelaxOptions(PropertyOptions):
    """Relaxed structures: lattice, volume, energy, space group."""

    @model_validator(mode="after")
    def _check_relax(self) -> Self:
        if self.relax is None:
            raise ValueError("relax: null leaves nothing to do; remove the key, or the entry")
        return self


class EquationOfStateOptions(PropertyOptions):
    """Energy against volume: equilibrium volume, bulk modulus and its derivative."""

    volume_range: Strain = 0.06
    """Largest change of the volume to either side, over the volume."""
    points: Annotated[int, Field(ge=5)] = 9
    """Volumes; the atoms relax at each of them, the shape of the cell is kept."""
    equation: Literal["birchmurnaghan", "vinet", "murnaghan"] = "birchmurnaghan"


class ElasticOptions(PropertyOptions):
    """Elastic constants: central differences of the stress by six strains, atoms relaxed."""

    relax: Relaxation | None = Relaxation(max_force=1e-4)
    """How the structures, and their atoms in strained cells, are relaxed; null for clamped ions."""
    strain: Strain = 0.005
    """Size of each strain, to either side."""


class PhononOptions(PropertyOptions):
    """Phonons of small displacements: bands, density of states, thermodynamics."""

    supercell_length: Positive = 10.0
    """Å that opposite faces of the supercell are apart, at least."""
    displacement: Positive = 0.01
    """Å"""
    mesh: Positive = 40.0
    """Density of the mesh of wave vectors: divisions of a reciprocal vector b are mesh |b|, Å."""
    max_temperature: Positive = 1000.0
    """Of the thermodynamic functions, K."""
    tolerance: Positive = 0.1
    """THz below zero at which a mode is said to be imaginary."""


class VacancyOptions(PropertyOptions):
    """Formation energies of neutral vacancies on all inequivalent sites."""

    supercell_length: Positive = 10.0
    """Å that opposite faces of the supercell are apart, at least."""
    distortions: Annotated[list[Distortion], Field(min_length=1)] = [0.0, -0.2]
    """Starts of the relaxation, of which that of the lowest energy counts: parts by which the
    nearest atoms are further from the empty site than in the crystal. The symmetric site may be
    but a local minimum (doi:10.1038/s41524-023-00973-1)."""
    rattle: NotNegative = 0.05
    """Standard deviation of displacements of all atoms at the start, Å, which break symmetry."""
    elements: list[str] | None = None
    """Of the atoms that are removed; null for all."""
    reservoirs: dict[str, Start] = {}
    """Element to the structure that its atoms go to, whose energy an atom is the chemical
    potential. A crystal of one element is its own; of others without one the energy is that of
    removing the atom, with what the model counts for a free atom of it."""

    @property
    def starts(self) -> list[Start]:
        """All structures that are read."""
        return [*self.structures, *self.reservoirs.values()]


class SurfaceOptions(PropertyOptions):
    """Surface energies of slabs, before and after their atoms relax."""

    miller: Annotated[list[tuple[int, int, int]], Field(min_length=1)] = [
        (1, 0, 0),
        (1, 1, 0),
        (1, 1, 1),
    ]
    """Miller indices in the conventional cell."""
    thickness: Positive = 12.0
    """Å of a slab, at least."""
    vacuum: Positive = 10.0
    """Å between a slab and its image, at least."""
    max_slabs: Count = 4
    """Terminations of one orientation that are calculated."""

    @field_validator("miller", mode="before")
    @classmethod
    def _require_three(cls, miller: object) -> object:
        """Name the plane that has not three indices, of which pydantic gives the number alone."""
        if not isinstance(miller, list):
            return miller
        for plane in miller:
            if isinstance(plane, list) and len(plane) != 3:
                raise ValueError(f"{plane} is no plane; give three indices, such as [1, 1, 0]")
        # What a function has returned is no JSON any more, and a list no tuple.
        return [tuple(plane) if isinstance(plane, list) else plane for plane in miller]

    @field_validator("miller")
    @classmethod
    def _check_miller(cls, miller: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        if (0, 0, 0) in miller:
            raise ValueError("miller: (0, 0, 0) is no plane; give another one")
        return miller


class Ends(Section):
    """Two minima, between which a path is searched; the same atoms in the same order."""

    name: Name
    initial: Start
    final: Start


class NebOptions(PropertyOptions):
    """Barriers of minimum-energy paths, by the nudged elastic band with a climbing image."""

    structures: list[Start] = []
    """Crystals in which the nearest atom of an element hops into a vacancy of it, one hop for each
    inequivalent site."""
    relax: Relaxation = Relaxation(max_force=0.02)
    """How crystals, ends, at fixed cell, and the band are relaxed; the band always takes FIRE."""
    supercell_length: Positive = 10.0
    """Å that opposite faces of the supercell of a vacancy are apart, at least."""
    elements: list[str] | None = None
    """Of the atoms that hop; null for all."""
    paths: list[Ends] = []
    """Other paths, whose ends are files or samples."""
    images: Count = 5
    """Between the ends."""

    @property
    def starts(self) -> list[Start]:
        """All structures that are read."""
        return [*self.structures, *(end for p in self.paths for end in (p.initial, p.final))]

    @model_validator(mode="after")
    def _check_paths(self) -> Self:
        if not self.structures and not self.paths:
            raise ValueError("there is no path; give structures, or paths with their ends")
        names = [*map(name_structure, self.structures), *(path.name for path in self.paths)]
        same = next((name for name in names if names.count(name) > 1), None)
        if same is not None:
            raise ValueError(f"paths: two results would be called {same!r}; rename one")
        return self


class MeltQuenchOptions(PropertyOptions):
    """Amorphous structures: melted in the cell as it is, cooled, annealed, relaxed."""

    relax: Relaxation | None = Relaxation(symmetry=False, max_force=0.02)
    """How the cold structure is relaxed at the end; null to leave it as it is."""
    supercell_length: NotNegative = 0.0
    """Å that opposite faces of the cell are apart, at least; 0 for the cell as it is."""
    melt_temperature: Positive = 3000.0
    """K"""
    melt_steps: Count = 2000
    cooling_rate: Positive = 500.0
    """K/ps; laboratory glasses are cooled some billion times slower."""
    final_temperature: Positive = 300.0
    """K"""
    anneal_steps: Count = 1000
    timestep: Positive = 1.0
    """fs"""
    friction: Positive = 0.005
    """Of the Langevin thermostat, 1/fs; a strong one keeps the atoms of a melt from mixing."""
    every: Count = 10
    """Steps between two stored frames."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the initial velocities and the thermostat."""

    @model_validator(mode="after")
    def _check_temperatures(self) -> Self:
        if self.final_temperature >= self.melt_temperature:
            raise ValueError(
                f"final_temperature {self.final_temperature:g} K is not below melt_temperature "
                f"{self.melt_temperature:g} K; lower it"
            )
        return self


SECTIONS: Final = {
    "relax": RelaxOptions,
    "eos": EquationOfStateOptions,
    "elastic": ElasticOptions,
    "phonons": PhononOptions,
    "vacancies": VacancyOptions,
    "surfaces": SurfaceOptions,
    "neb": NebOptions,
    "melt_quench": MeltQuenchOptions,
}
"""Sections of `infer` and what validates an entry of each."""
GROUP: Final = "properties"
"""Of `inference.h5`, with what the model gives: section / entry / structure."""
