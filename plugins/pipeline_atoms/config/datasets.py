"""Dataset files of structures: sources of raw data, their labels and units, and mixtures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipeline_atoms.config.limits import Atoms, Copies
from pipeline_core.config.datasets import DatasetFile, Split
from pipeline_core.config.sections import Count, Positive, Section

Label = Literal["energy", "forces", "stress", "magmoms"]


class UnitsOverride(Section):
    """Units of a source that differ from those of its format."""

    length: str | None = None
    energy: str | None = None
    force: str | None = None
    stress: str | None = None
    stress_sign: Literal["tension", "pressure"] | None = None


class Limits(Section):
    """Plausible ranges of the numbers of a frame; a frame beyond one is bad. null sets no limit."""

    length: Positive | None = 1e4
    """Å: largest coordinate, and largest length of a lattice vector."""
    volume: Positive | None = 0.5
    """Å³ per atom: smallest volume of a cell that is periodic in three directions."""
    distance: Positive | None = 0.2
    """Smallest distance of two atoms, over the sum of their covalent radii."""
    force: Positive | None = 1e3
    """eV/Å"""
    energy: Positive | None = 1e7
    """eV/atom, of either sign; all electrons of the heaviest element have less."""
    stress: Positive | None = 1e2
    """eV/Å³"""
    magmom: Positive | None = 50.0
    """µB"""
    net_force: Positive | None = 0.1
    """Largest sum of the forces over the sum of their sizes where positions add up to zero, as
    forces do: beyond it, the two have been exchanged."""


class Source(Section):
    """Raw files of one format."""

    path: str
    """File or glob pattern, relative to the dataset file; ** crosses folders."""
    reader: str | None = None
    """Format; null to take it from the ending of the file name."""
    keys: dict[Label, str] = {}
    """Names of the labels in the file, where the format leaves the choice."""
    units: UnitsOverride = UnitsOverride()
    group: str | None = None
    """Grouping of frames: "folder", "file", "composition", or a key of the frames' information."""
    split: Literal["train", "val", "test"] | None = None
    """Puts the whole source into one split."""
    limits: Limits = Limits()
    """Plausible ranges; set a limit to another value, or to null, if such frames are intended."""
    energy_corrections: Literal["none", "mp2020"] = "none"
    """Correction added to the energies. mp2020: the corrections of the Materials Project, for
    energies of PBE and PBE+U calculated with its settings (MPtrj without corrections)."""
    repeat: Copies | None = None
    """Copies of each periodic cell along its vectors; labels are repeated to match, exactly.

    Sources may share files if their copies differ. All copies of a frame are in one split.
    """
    repeat_to: Atoms | None = None
    """Alternative to `repeat`: as many copies of each periodic cell as fit into so many atoms.

    No edge of the copies becomes more than twice as long as another, unless it was so before; cells
    that are not periodic, or too large already, are kept as they are.
    """

    @model_validator(mode="after")
    def _check_repeat(self) -> Source:
        if self.repeat is not None and self.repeat_to is not None:
            raise ValueError("repeat and repeat_to exclude each other; remove one of them")
        return self


class Structures(DatasetFile):
    """Structures with labels, which are imported from files."""

    reference_energies: Literal["least_squares", "none"] | dict[str, float] = "least_squares"
    """Energies of the free atoms, eV: fitted on the training split, none, or given by symbol."""
    max_reference_energy: Positive = 1e5
    """Largest fitted magnitude, eV; beyond it the import stops: wrong units or mixed methods."""


class Dataset(Structures):
    """Structures with labels, read from raw files."""

    sources: Annotated[list[Source], Field(min_length=1)]
    labels: list[Label] = ["energy", "forces", "stress"]
    """Labels to keep; each frame must have them, unless they are listed in `partial`."""
    partial: list[Label] = []
    """Labels that may be missing in a part of the frames."""
    strict: bool = False
    """True if a bad frame stops the import; otherwise it is skipped and reported."""
    split: Split = Split()
    stress_check_samples: Count = 64
    """Largest number of pairs of strained frames for the sign check of the stress."""

    @property
    def raw_patterns(self) -> dict[str, str]:
        """Patterns of the sources."""
        return {f"sources.{i}.path": source.path for i, source in enumerate(self.sources)}


class LabelledFrames(Dataset):
    """Structures picked by active learning, labelled or yet to be labelled."""

    files: list[str]
    """Names of the files, existing or to come."""

    @property
    def expected(self) -> list[str]:
        """All files, existing or to come."""
        return self.files


class MixturePart(Section):
    """A dataset that belongs to a mixture."""

    dataset: str
    """Its name; its file lies in the folder of the mixture's file."""
    head: str | None = None
    """The head of the model for its energies, such as a level of theory: parts with one name share
    it. Each head has its own fit of the reference energies."""


class Mixture(Structures):
    """Structures of several datasets, each imported and split as its own file states.

    Energies of different methods differ by more than a fit of reference energies can remove. The
    report gives the residual energies of each part.
    """

    parts: Annotated[list[MixturePart], Field(min_length=1)]

    @property
    def part_names(self) -> list[str]:
        """Names of the parts."""
        return [part.dataset for part in self.parts]

    @property
    def heads(self) -> list[str]:
        """Names of the heads, in the order of their first parts; none where no part names one."""
        return list(dict.fromkeys(part.head for part in self.parts if part.head is not None))

    @model_validator(mode="after")
    def _check_mixture(self) -> Mixture:
        names = self.part_names
        twice = [name for name in names if names.count(name) > 1]
        lacking = [part.dataset for part in self.parts if part.head is None]
        if lacking and len(lacking) < len(self.parts):
            raise ValueError(
                f"parts: {lacking[0]!r} names no head, but others do; give one to each part, or "
                "to none"
            )
        if twice:
            raise ValueError(f"parts: {twice[0]!r} is named twice; name each dataset once")
        if self.plugin is not None or self.downloads:
            raise ValueError(
                "a mixture has neither `plugin` nor `downloads`: its parts are imported by the "
                "engine, and their files are named by their own dataset files"
            )
        return self


def choose_model(content: Mapping[str, Any]) -> type[Structures]:
    """Return the model of a dataset file of structures."""
    return Mixture if "parts" in content else Dataset
