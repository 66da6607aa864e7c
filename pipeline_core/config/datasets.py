"""Dataset files: sources of raw data, their units, and the split."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from pipeline_core.config.sections import Fraction, Section

# Downloads are words of shell commands; no part of their paths is hidden or leads upwards.
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")


class Split(Section):
    """Split of the samples. Sources that name their split keep it."""

    method: Literal["random", "group", "composition", "list", "energy"] = "random"
    """Method of the split.

    At random, whole groups together, each composition divided alike, groups by name, or by energy:
    the highest energies per atom for the test, the next highest for validation.
    """
    val: Fraction = 0.1
    test: Fraction = 0.1
    seed: int = 0
    val_groups: list[str] = []
    """List: names of the groups for validation; * and ? match."""
    test_groups: list[str] = []

    @model_validator(mode="after")
    def _check_parts(self) -> Split:
        if self.method != "list" and self.val + self.test >= 1:
            raise ValueError(f"val + test = {self.val + self.test:g} leaves nothing to train on")
        if self.method == "list" and not (self.val_groups or self.test_groups):
            raise ValueError("method 'list' needs val_groups or test_groups")
        return self


class Download(Section):
    """A raw file that does not come with the dataset file."""

    url: Annotated[str, Field(pattern=r"^(https?|ftp|file)://\S+$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Hash of the file, in hexadecimal."""
    max_gb: Annotated[float, Field(gt=0)] = 100.0
    """Largest size of an answer, GB; a larger one is refused."""


class DatasetFile(Section):
    """Keys of every dataset file, `workflows/datasets/<name>.yaml`.

    A plugin derives its own from this (`ModelInfo.dataset`, or the hook `dataset_model` for files
    that name no plugin).
    """

    description: str
    citation: str = ""
    licence: str = ""
    plugin: str | None = None
    """The plugin that makes the data; null for files of structures, which are imported."""
    downloads: dict[str, Download] = {}
    """Raw files to be fetched, by their paths relative to the dataset file."""

    @model_validator(mode="after")
    def _check_downloads(self) -> DatasetFile:
        for name in self.downloads:
            if not _PATH.fullmatch(name):
                raise ValueError(
                    f"downloads: {name!r} has to be a path below the folder of the dataset file, "
                    "of letters, digits, '_', '-', '+' and '.', such as raw/train.xyz"
                )
        return self

    @property
    def raw_patterns(self) -> dict[str, str]:
        """Patterns of the raw files, relative to the dataset file, by their keys in it."""
        return {}

    @property
    def expected(self) -> list[str]:
        """Names of raw files that count as present because they can be fetched or made."""
        return list(self.downloads)

    @property
    def part_names(self) -> list[str]:
        """Names of the datasets that a mixture consists of; empty for other datasets."""
        return []
