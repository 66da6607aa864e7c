"""A dataset to be imported: its raw files and the paths of its artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipeline_core.artifacts import provenance
from pipeline_core.config.datasets import DatasetFile
from pipeline_core.config.raw_files import hash_raw_files, match_files, stamp_file
from pipeline_core.registry import Registry

# Keys of a dataset file. Downloaded files count by their content, as raw files.
_NO_EFFECT: Final = ("description", "citation", "licence", "downloads")


@dataclass(frozen=True)
class Dependencies:
    """Inputs of an import besides the dataset file and the raw files that it names.

    Attributes:
        files: Files read together with the raw files, by name.
        plugins: Fingerprint and version of the plugin that reads a format, by the format's name.
    """

    files: Mapping[str, Path] = field(default_factory=dict)
    plugins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetRun:
    """A dataset to be imported.

    Attributes:
        name: Its name.
        path: The dataset file.
        options: Its content.
        folder: Folder of its artifacts.
        registry: The plugins.
        mixed: The datasets that a mixture consists of.
        grows: Options of the command that imports it, for a dataset that a round of active learning
            derives from the one before; else empty.
    """

    name: str
    path: Path
    options: DatasetFile
    folder: Path
    registry: Registry
    mixed: tuple[DatasetRun, ...] = ()
    grows: str = ""

    @property
    def parts(self) -> tuple[DatasetRun, ...]:
        """The datasets whose raw files are read: the parts of a mixture, else itself."""
        return self.mixed or (self,)

    @property
    def data(self) -> Path:
        """Samples, splits and reference energies (HDF5)."""
        return self.folder / "data.h5"

    @property
    def report(self) -> Path:
        """Report of the import: samples read, frames skipped, warnings (JSON)."""
        return self.folder / "import.json"

    @property
    def command(self) -> str:
        """Command that makes the data by hand."""
        return f"pipeline-core data {self.grows or f'--dataset {self.name}'}"

    def find_raw_files(self) -> dict[str, Path]:
        """Return the raw files by name, in the order of their sources.

        Files that are still to be fetched are included.

        Raises:
            ValueError: A source matches no file.
        """
        return {
            name: path
            for part in self.parts
            for key, pattern in part.options.raw_patterns.items()
            for name, path in match_files(part.path, key, pattern, part.options.expected).items()
        }

    def find_dependencies(self) -> Dependencies:
        """Return the inputs of the import besides the raw files."""
        hook = self.registry.select_hook("dependencies", self.options.plugin)
        found: Dependencies | None = hook(run=self)
        return found or Dependencies()

    def list_expected(self) -> list[Path]:
        """Return the raw files that count as present because they can be fetched or made."""
        return [part.path.parent / name for part in self.parts for name in part.options.expected]

    def hash_raw_files(self) -> dict[str, str]:
        """Return name and SHA-256 of the raw files that are there.

        Raises:
            ValueError: A source matches no file, or one cannot be read.
        """
        return hash_raw_files(self.find_raw_files(), self.raw_memory)

    @property
    def raw_memory(self) -> Path:
        """File that caches hashes of raw files, for all datasets of a results folder."""
        return self.folder.parents[2 if self.grows else 1] / ".raw_files.json"

    def select_params(self) -> dict[str, Any]:
        """The content of the dataset file, without keys that do not affect the samples."""
        options = self.options.model_dump(mode="json")
        params = {key: value for key, value in options.items() if key not in _NO_EFFECT}
        if self.mixed:
            params["parts"] = {part.name: part.select_params() for part in self.mixed}
        return params

    def make_provenance(self) -> dict[str, Any]:
        """Provenance record of an artifact of the data stage."""
        facts: dict[str, Any] = {"options": self.options.model_dump(mode="json")}
        if self.mixed:
            facts["parts"] = {p.name: p.options.model_dump(mode="json") for p in self.mixed}
        if self.options.plugin is not None:
            facts |= self.registry.identify(self.options.plugin)
        hashes, stamps = self.hash_raw_files(), provenance.AT_BEGIN.get()
        for name, path in self.find_raw_files().items():
            if path in stamps and path.is_file() and stamps[path] != str(stamp_file(path)):
                hashes[name] = "changed while it was read"  # not a hash of any file: always stale
        return provenance.make_record(stage="data", **facts, inputs=hashes)
