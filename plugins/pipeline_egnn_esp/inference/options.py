"""Section `infer`: structures whose Hamiltonian is predicted, and the outputs made from it."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline_atoms.config.limits import Copies
from pipeline_atoms.structure import parse_start
from pipeline_core.config.sections import (
    Count,
    Positive,
    Section,
    require_different,
)


class Levels(Section):
    """Levels at the Gamma point."""

    energy: float | None = None
    """Energy whose nearest levels are found, eV; null for all levels, for small structures."""
    count: Count = 20
    """Number of levels found near `energy`."""


class DensityOfStates(Section):
    """Gaussians at all levels of a grid of k-points; for structures small enough for all levels."""

    k_points: tuple[Count, Count, Count] = (1, 1, 1)
    """Points of a Monkhorst-Pack grid along each reciprocal lattice vector."""
    width: Positive = 0.1
    """Standard deviation of a Gaussian, eV."""
    points: Annotated[int, Field(ge=2)] = 400
    """Number of energies, from below the lowest level to above the highest."""


class Bands(Section):
    """Levels along a path; for small cells."""

    path: str | None = None
    """Names of special points, such as GXMG; null for the path that ASE proposes."""
    points: Annotated[int, Field(ge=2)] = 60


class PredictedStructure(Section):
    """A structure and its requested outputs."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    start: str = "test:0"
    """A sample of the dataset as split:number, with its overlap, exact in repeated cells, too; or
    the path of a file that ASE can read, without an overlap."""
    repeat: Copies = (1, 1, 1)
    """Copies of the cell along its vectors."""
    outputs: list[Literal["deeph", "cp2k_csr"]] = []
    """Files of the matrices beside `matrices/<name>.h5`, which is always written.

    | output   | what is written to `matrices/`                                  |
    |----------|-----------------------------------------------------------------|
    | deeph    | `<name>.deeph/`: the layout of DeepH                            |
    | cp2k_csr | `<name>.cp2k/`: a text file for each image, as CP2K writes them |
    """
    levels: Levels | None = None
    density_of_states: DensityOfStates | None = None
    bands: Bands | None = None
    picture: Count | None = None
    """Pixels of a side of a picture of |H|; null for none."""

    @property
    def wants_levels(self) -> bool:
        """True if the eigenvalue problem is solved, which needs the overlap."""
        return any((self.levels, self.density_of_states, self.bands))

    @model_validator(mode="after")
    def _check_without_overlap(self) -> Self:
        if parse_start(self.start) is None and (self.wants_levels or self.outputs):
            raise ValueError(
                f"{self.name}: levels, density_of_states, bands and outputs need the overlap, "
                f"which {self.start!r} lacks; start from a sample such as test:0, or do without "
                "them"
            )
        return self


class ESPInferOptions(Section):
    """Use of the trained model; `partition.method` divides each structure between the ranks."""

    moved: ClassVar = {"partition": "partition.method"}

    structures: list[PredictedStructure] = []
    work_bytes: Annotated[int, Field(ge=2**20)] = 2**28
    """Memory for what is calculated of some edges at a time: less saves memory, too little costs
    time."""
    dense_orbitals: Count = 6000
    """Largest number of orbitals for which all levels are calculated: time grows with its cube."""

    @property
    def files(self) -> list[Path]:
        """Files of structures that are read."""
        return [Path(one.start) for one in self.structures if parse_start(one.start) is None]

    @field_validator("structures")
    @classmethod
    def _require_different_names(
        cls, structures: list[PredictedStructure]
    ) -> list[PredictedStructure]:
        require_different([one.name for one in structures])
        return structures
