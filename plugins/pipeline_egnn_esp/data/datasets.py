"""Dataset files of Hamiltonians: matrices of other programs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from pipeline_core.config.datasets import DatasetFile, Split
from pipeline_core.config.sections import Positive, Section


def _check_shells(basis: dict[str, list[int]]) -> dict[str, list[int]]:
    from pipeline_egnn_esp.data.basis import Basis  # brings ASE, too heavy for `model`

    Basis({symbol: tuple(shells) for symbol, shells in basis.items()})
    return basis


Shells = Annotated[
    dict[str, Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]],
    AfterValidator(_check_shells),
]


class MatrixSource(Section):
    """Files of one kind."""

    path: str
    """File or glob pattern, relative to the dataset file; ** crosses folders."""
    group: Literal["file", "folder"] | None = None
    """Definition of a group, for `split`; null puts all files into one, named after the reader."""
    split: Literal["train", "val", "test"] | None = None
    """Split that takes the whole source."""


class PackedSource(MatrixSource):
    """HDF5 with one group a structure: see `workflows/datasets/hfo2/README.md`."""

    reader: Literal["packed"]
    basis: Shells
    """Degree of each shell of an element, in the order of the matrices."""
    cutoff: Positive | None = None
    """Pairs beyond this distance are left out, Å; null keeps all."""


class CP2KSource(MatrixSource):
    """Outputs of CP2K, with the matrices beside them."""

    reader: Literal["cp2k_matrices"]
    basis: Shells = {}
    """Degree of each shell of an element; empty to take them from the output, which prints them
    from PRINT_LEVEL MEDIUM on."""
    cutoff: Positive = 12.0
    """Pairs beyond this distance are left out, Å. The paper's r_cut is half of it."""
    structure: str | None = None
    """Name of an input or restart file beside each output; null for the input it names."""


class DeepHSource(MatrixSource):
    """Folders in the layout of DeepH; `path` names the files hamiltonians.h5."""

    reader: Literal["deeph"]
    pbc: tuple[bool, bool, bool] = (True, True, True)
    """Periodic directions, which the layout does not contain."""
    cutoff: Positive | None = None
    """Pairs beyond this distance are left out, Å; null keeps all."""


AnySource = Annotated[PackedSource | CP2KSource | DeepHSource, Field(discriminator="reader")]


class MatrixDataset(DatasetFile):
    """Hamiltonians and overlaps in a basis of atomic orbitals."""

    sources: Annotated[list[AnySource], Field(min_length=1)]
    """Sources of the matrices.

    | reader        | matrices                                                                  |
    |---------------|---------------------------------------------------------------------------|
    | packed        | HDF5 of blocks, such as the shipped hafnia                                |
    | cp2k_matrices | written by CP2K, of real space or of the Gamma point                      |
    | deeph         | the layout of DeepH: hamiltonians.h5, overlaps.h5                         |
    """
    split: Split = Split()

    @property
    def raw_patterns(self) -> dict[str, str]:
        """Patterns of the sources."""
        return {f"sources.{i}.path": source.path for i, source in enumerate(self.sources)}

    @model_validator(mode="after")
    def _check_division(self) -> MatrixDataset:
        if self.split.method == "energy":
            raise ValueError(
                "split.method 'energy': matrices come without energies; choose random, group, "
                "composition or list"
            )
        grouped = [source.group is not None for source in self.sources if source.split is None]
        if self.split.method in ("group", "list") and not all(grouped):
            raise ValueError(
                f"split.method {self.split.method!r} needs groups; set `group` of every source"
            )
        return self
