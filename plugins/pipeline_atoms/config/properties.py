"""Properties of materials that the stage `infer` calculates with a trained potential."""

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline_atoms.structure import parse_start
from pipeline_core.config.sections import Count, NotNegative, Positive, Section

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
Start = str
"""A sample of the dataset as split:number, or the path of a file that ASE can read."""
Starts = Annotated[list[Start], Field(min_length=1)]
Distortion = Annotated[float, Field(ge=-0.5, le=0.5)]
Strain = Annotated[float, Field(gt=0, lt=0.3)]


def name_structure(start: Start) -> str:
    """Return the name of a structure in results: the stem of its file, or the sample."""
    named = parse_start(start)
    return f"{named[0]} {named[1]}" if named else Path(start).stem


class Relaxation(Section):
    """Relaxation of a structure until its forces, and the stress of its cell, vanish."""

    optimizer: Literal["lbfgs", "fire"] = "lbfgs"
    """LBFGS takes fewer steps; FIRE is robust where the start is far from a minimum."""
    cell: bool = True
    """True to relax the cell too; it must be periodic in three directions."""
    symmetry: bool = True
    """True to keep the space group of the start."""
    symmetry_tolerance: Positive = 0.01
    """Tolerance on positions for the symmetry of the start, Å."""
    pressure: float = 0.0
    """External pressure on a cell that relaxes, GPa."""
    max_force: Positive = 0.001
    """Largest force at the end, eV/Å; and largest stress of a cell that relaxes, eV/Å³."""
    steps: Count = 500
    """Largest number of steps; then a structure is reported as not converged."""


class PropertyOptions(Section):
    """Common options of all properties. As an entry of `infer.relax`: the relaxation alone."""

    name: Name
    structures: Starts
    """Samples of the dataset as split:number, or paths of files that ASE can read."""
    relax: Relaxation | None = Relaxation()
    """Relaxation of the structures beforehand; null to use them as they are."""

    @property
    def starts(self) -> list[Start]:
        """All structures to read."""
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
    """Largest relative change of the volume, to either side."""
    points: Annotated[int, Field(ge=5)] = 9
    """Number of volumes; the atoms relax at each of them, the shape of the cell is kept."""
    equation: Literal["birchmurnaghan", "vinet", "murnaghan"] = "birchmurnaghan"


class ElasticOptions(PropertyOptions):
    """Elastic constants: central differences of the stress by six strains, atoms relaxed."""

    relax: Relaxation | None = Relaxation(max_force=1e-4)
    """Relaxation of the structures, and of atoms in strained cells; null for clamped ions."""
    strain: Strain = 0.005
    """Size of each strain, to either side."""


class PhononOptions(PropertyOptions):
    """Phonons by finite displacements: bands, density of states, thermodynamics."""

    supercell_length: Positive = 10.0
    """Smallest distance of opposite faces of the supercell, Å."""
    displacement: Positive = 0.01
    """Å"""
    mesh: Positive = 40.0
    """Density of the mesh of wave vectors: divisions of a reciprocal vector b are mesh |b|, Å."""
    max_temperature: Positive = 1000.0
    """Largest temperature of the thermodynamic functions, K."""
    tolerance: Positive = 0.1
    """THz below zero from which on a mode counts as imaginary."""


class VacancyOptions(PropertyOptions):
    """Formation energies of neutral vacancies on all inequivalent sites."""

    supercell_length: Positive = 10.0
    """Smallest distance of opposite faces of the supercell, Å."""
    distortions: Annotated[list[Distortion], Field(min_length=1)] = [0.0, -0.2]
    """Starts of the relaxation; the lowest energy counts. Each is the relative change of the
    distance of the nearest atoms from the empty site. The symmetric site may be only a local
    minimum (doi:10.1038/s41524-023-00973-1)."""
    rattle: NotNegative = 0.05
    """Standard deviation of random displacements of all atoms at the start, Å; they break the
    symmetry."""
    elements: list[str] | None = None
    """Elements of the atoms to remove; null for all."""
    reservoirs: dict[str, Start] = {}
    """Element to reservoir: the structure whose energy per atom is the chemical potential. For a
    crystal of one element it is the crystal itself; for other elements without an entry it is the
    energy of a free atom in the model."""

    @property
    def starts(self) -> list[Start]:
        """All structures to read."""
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
    """Smallest thickness of a slab, Å."""
    vacuum: Positive = 10.0
    """Smallest distance between a slab and its image, Å."""
    max_slabs: Count = 4
    """Largest number of terminations of one orientation."""

    @field_validator("miller", mode="before")
    @classmethod
    def _require_three(cls, miller: object) -> object:
        """Refuse a plane without three indices by name; pydantic reports only its position."""
        if not isinstance(miller, list):
            return miller
        for plane in miller:
            if isinstance(plane, list) and len(plane) != 3:
                raise ValueError(f"{plane} is not a plane; give three indices, such as [1, 1, 0]")
        # The value that a validator returns is not JSON, and a list does not count as a tuple.
        return [tuple(plane) if isinstance(plane, list) else plane for plane in miller]

    @field_validator("miller")
    @classmethod
    def _check_miller(cls, miller: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        if (0, 0, 0) in miller:
            raise ValueError("miller: (0, 0, 0) is not a plane; give another one")
        return miller


class Ends(Section):
    """Two minima at the ends of a path; the same atoms in the same order."""

    name: Name
    initial: Start
    final: Start


class NebOptions(PropertyOptions):
    """Barriers of minimum-energy paths, by the nudged elastic band with a climbing image."""

    structures: list[Start] = []
    """Crystals in which an atom hops into a vacancy of the same element, the nearest atom for each
    inequivalent site."""
    relax: Relaxation = Relaxation(max_force=0.02)
    """Relaxation of crystals, of ends at fixed cell, and of the band, which always uses FIRE."""
    supercell_length: Positive = 10.0
    """Smallest distance of opposite faces of the supercell of a vacancy, Å."""
    elements: list[str] | None = None
    """Elements of the atoms that hop; null for all."""
    paths: list[Ends] = []
    """Other paths, between files or samples."""
    images: Count = 5
    """Number of images between the ends."""

    @property
    def starts(self) -> list[Start]:
        """All structures to read."""
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
    """Relaxation of the cold structure at the end; null to leave it as it is."""
    supercell_length: NotNegative = 0.0
    """Smallest distance of opposite faces of the cell, Å; 0 for the cell as it is."""
    melt_temperature: Positive = 3000.0
    """K"""
    melt_steps: Count = 2000
    cooling_rate: Positive = 500.0
    """Cooling rate, K/ps; laboratory glasses are cooled some billion times slower."""
    final_temperature: Positive = 300.0
    """K"""
    anneal_steps: Count = 1000
    timestep: Positive = 1.0
    """fs"""
    friction: Positive = 0.005
    """Friction of the Langevin thermostat, 1/fs; a strong one slows mixing in the melt."""
    every: Count = 10
    """Steps between two stored frames."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the initial velocities and the thermostat."""

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
"""Sections of `infer`, with the class that validates their entries."""
GROUP: Final = "properties"
"""Group of the results in `inference.h5`: section / entry / structure."""
