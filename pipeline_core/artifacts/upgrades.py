"""Versions of files, and upgrades from each version to the next one.

When a kind of file changes, its `Versions` get a new number, and a step under the number before:
here for files of the engine, in `ModelInfo` for weights and metadata of a plugin. Files of users
are not rewritten: they are upgraded while they are read.

Before a change, keep files of the previous version: see `tests/plugins/older/make.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Generic, TypeVar

import h5py

Step = TypeVar("Step")
ArchiveStep = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns the content of a torch archive in the next version."""
StoreStep = Callable[[h5py.File, h5py.File], None]
"""Changes an artifact, whose datasets are links, given the file that they point to."""


@dataclass(frozen=True)
class Versions(Generic[Step]):
    """Versions of a kind of file.

    Attributes:
        current: Version that is written.
        steps: For each earlier version that can be read, the conversion to the next one.
    """

    current: int = 1
    steps: Mapping[int, Step] = field(default_factory=dict)

    def list_steps(self, version: int, place: str) -> list[Step]:
        """Return the conversions of a version to the current one, in order.

        Args:
            version: Version of a file.
            place: File and part, for messages.

        Raises:
            ValueError: The version is newer than the current one, or has no conversion.
        """
        if version > self.current:
            raise ValueError(
                f"{place}: of version {version}, this package reads up to {self.current}; install "
                "the version of the package that wrote the file, or remove it and run its stage "
                "again"
            )
        numbers = range(version, self.current)
        if any(number not in self.steps for number in numbers):
            raise ValueError(
                f"{place}: of version {version}, which this package cannot read; remove the file "
                "and run its stage again"
            )
        return [self.steps[number] for number in numbers]


MODEL: Final = Versions[ArchiveStep](2)
"""The engine's part of `model.pt`."""

STATE: Final = Versions[ArchiveStep](1)
"""The engine's part of `state/last.pt`."""

STORES: Final = {"partition": Versions[StoreStep](2)}
"""HDF5 files by schema; those of other schemas are of version 1."""


def find_store_versions(schema: str) -> Versions[StoreStep]:
    """Return the versions of HDF5 files of a schema."""
    return STORES.get(schema, Versions[StoreStep]())


@contextmanager
def open_upgraded(file: h5py.File, path: Path) -> Iterator[h5py.File]:
    """Yield an artifact upgraded to the current version of its schema.

    Datasets are links into the file as it is, so that nothing large is copied.

    Args:
        file: The artifact, open for reading, and checked as a whole if it is of an earlier version.
        path: Its name.

    Raises:
        ValueError: The version is newer than the current one, or has no conversion.
    """
    versions = find_store_versions(file.attrs["schema"])
    steps = versions.list_steps(int(file.attrs.get("schema_version", 0)), str(path))
    if not steps:
        yield file
        return
    with TemporaryDirectory() as folder:
        view = Path(folder) / "upgraded.h5"
        with h5py.File(view, "w", libver="v110") as new:
            _link_members(file, new, str(path.resolve()))
            for step in steps:
                step(new, file)
            new.attrs["schema_version"] = versions.current
        with h5py.File(view, "r") as new:
            yield new


def _link_members(old: h5py.Group, new: h5py.Group, path: str) -> None:
    """Mirror groups and attributes; make each dataset a link into the file `path`."""
    for name, value in old.attrs.items():
        new.attrs[name] = value
    for name, item in old.items():
        if isinstance(item, h5py.Group):
            _link_members(item, new.create_group(name), path)
        else:
            new[name] = h5py.ExternalLink(path, item.name)
