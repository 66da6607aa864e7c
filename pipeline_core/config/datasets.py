"""Dataset files: where raw data come from, their units, how they are split."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_core.config.sections import Count, Fraction, Positive, Section

Label = Literal["energy", "forces", "stress", "magmoms"]


class UnitsOverride(Section):
    """Units of a source that differ from those of its format."""

    length: str | None = None
    energy: str | None = None
    force: str | None = None
    stress: str | None = None
    stress_sign: Literal["tension", "pressure"] | None = None


class Source(Section):
    """Raw files of one format."""

    path: str
    """File or glob pattern, relative to the dataset file; ** crosses folders."""
    reader: str | None = None
    """Format; null to take it from the ending of the file name."""
    keys: dict[Label, str] = {}
    """Names that the labels have in the file, where the format leaves the choice."""
    units: UnitsOverride = UnitsOverride()
    group: str | None = None
    """What a group is: "folder", "file", "composition", or a key of the frames' information."""
    split: Literal["train", "val", "test"] | None = None
    """Puts the whole source into one split."""


class Split(Section):
    """How samples are divided. Sources that name their split keep it."""

    method: Literal["random", "group", "composition", "list", "energy"] = "random"
    """How.

    At random, whole groups together, each composition divided alike, groups by name, or by energy:
    the highest energies per atom for the test, those below them for validation.
    """
    val: Fraction = 0.1
    test: Fraction = 0.1
    seed: int = 0
    val_groups: list[str] = []
    """List: names of the groups for validation; * and ? match."""
    test_groups: list[str] = []

    @model_validator(mode="after")
    def _room_for_training(self) -> Split:
        if self.method != "list" and self.val + self.test >= 1:
            raise ValueError(f"val + test = {self.val + self.test:g} leaves nothing to train on")
        if self.method == "list" and not (self.val_groups or self.test_groups):
            raise ValueError("method 'list' needs val_groups or test_groups")
        return self


class DatasetFile(Section):
    """What every dataset file says, `workflows/datasets/<name>.yaml`.

    A plugin whose data are not frames of atoms derives its own from this (`ModelInfo.dataset`).
    """

    description: str
    citation: str = ""
    licence: str = ""
    plugin: str | None = None
    """The plugin that makes the data; null for files of structures, which the engine imports."""

    @property
    def raw_patterns(self) -> dict[str, str]:
        """Patterns of the raw files, relative to the dataset file, by their keys in it."""
        return {}


class Dataset(DatasetFile):
    """Structures with labels, read from raw files."""

    sources: Annotated[list[Source], Field(min_length=1)]
    labels: list[Label] = ["energy", "forces", "stress"]
    """Labels that are kept; each frame must carry them, unless they are listed in `partial`."""
    partial: list[Label] = []
    """Labels that may be missing in a part of the frames."""
    strict: bool = False
    """Whether a bad frame stops the import; otherwise it is skipped and reported."""
    split: Split = Split()
    reference_energies: Literal["least_squares", "none"] | dict[str, float] = "least_squares"
    """Energies of the free atoms, eV: fitted on the training split, none, or given by symbol."""
    max_reference_energy: Positive = 1e5
    """Import stops at a larger fitted magnitude, eV: a sign of wrong units or mixed methods."""
    stress_check_samples: Count = 64
    """Pairs of strained frames that the sign check of the stress uses at most."""

    @property
    def raw_patterns(self) -> dict[str, str]:
        """Patterns of the sources."""
        return {f"sources.{i}.path": source.path for i, source in enumerate(self.sources)}
