"""A dataset to be imported: its raw files, and where what is made of them lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipeline_core import provenance
from pipeline_core.config.datasets import Dataset, DatasetFile
from pipeline_core.config.raw_files import hash_raw_files, match_files, stamp_file
from pipeline_core.registry import Registry

# Of a dataset file. Downloaded files count by their content, as raw files.
_NO_EFFECT: Final = ("description", "citation", "licence", "downloads")


@dataclass(frozen=True)
class Dependencies:
    """What an import depends on beside the dataset file and the raw files that it names.

    Attributes:
        files: Files that are read with the raw files, by name.
        plugins: By name of a format, fingerprint and version of the plugin that reads it.
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
        grows: Of a dataset that a round of a learning experiment makes of the one before, the
            options of the command that imports it; else empty.
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
    def frames(self) -> Dataset:
        """The options, of a dataset that the engine imports.

        Raises:
            ValueError: A plugin describes its data in its own way but leaves the import to the
                engine.
        """
        if not isinstance(self.options, Dataset):
            raise ValueError(
                f"{self.path}: plugin {self.options.plugin!r} has dataset files of its own but "
                "does not make the data: implement the hook data(run)"
            )
        return self.options

    @property
    def data(self) -> Path:
        """Samples, splits and reference energies (HDF5)."""
        return self.folder / "data.h5"

    @property
    def kept(self) -> Path:
        """The samples of the latest import, by a name that outlives `data` (HDF5); no output.

        The rounds of a learning experiment share it, so that each reads the new files alone.
        """
        if self.grows:
            return self.folder.with_name(f".{self.folder.name.partition('_')[0]}.kept.h5")
        return self.folder / "data.kept.h5"

    @property
    def report(self) -> Path:
        """What was imported, skipped and found (JSON)."""
        return self.folder / "import.json"

    @property
    def command(self) -> str:
        """What makes the data by hand."""
        return f"pipeline-core data {self.grows or f'--dataset {self.name}'}"

    def find_raw_files(self) -> dict[str, Path]:
        """Return the raw files by name, in the order of their sources.

        Files that are to be fetched first are among them.

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
        """Return what the import depends on beside the raw files."""
        hook = self.registry.select_hook("dependencies", self.options.plugin)
        found: Dependencies | None = hook(run=self)
        return found or Dependencies()

    def list_expected(self) -> list[Path]:
        """Return the raw files that count as there, since they can be had."""
        return [part.path.parent / name for part in self.parts for name in part.options.expected]

    def hash_raw_files(self) -> dict[str, str]:
        """Return name and SHA-256 of the raw files that are there.

        Raises:
            ValueError: A source matches no file, or one cannot be read.
        """
        return hash_raw_files(self.find_raw_files(), self.raw_memory)

    @property
    def raw_memory(self) -> Path:
        """Where the hashes of raw files are remembered, for all datasets of a folder of results."""
        return self.folder.parents[2 if self.grows else 1] / ".raw_files.json"

    def select_params(self) -> dict[str, Any]:
        """The content of the dataset file, less what has no effect on the samples."""
        options = self.options.model_dump(mode="json")
        params = {key: value for key, value in options.items() if key not in _NO_EFFECT}
        if self.mixed:
            params["parts"] = {part.name: part.select_params() for part in self.mixed}
        return params

    def make_provenance(self) -> dict[str, Any]:
        """Record of where an artifact of the data stage comes from."""
        facts: dict[str, Any] = {"options": self.options.model_dump(mode="json")}
        if self.mixed:
            facts["parts"] = {p.name: p.options.model_dump(mode="json") for p in self.mixed}
        if self.options.plugin is not None:
            facts |= self.registry.identify(self.options.plugin)
        hashes, known = self.hash_raw_files(), provenance.AT_BEGIN.get()
        for name, path in self.find_raw_files().items():
            if path in known and path.is_file() and known[path] != str(stamp_file(path)):
                hashes[name] = "changed while it was read"  # the hash of no file: stale for ever
        return provenance.make_record(stage="data", **facts, inputs=hashes)
