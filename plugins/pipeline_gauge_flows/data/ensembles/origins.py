"""Sources of configurations: Markov chains and files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts import provenance
from pipeline_gauge_flows.data.datasets import (
    ActionOptions,
    FileSource,
    HeatbathOptions,
    HmcOptions,
)
from pipeline_gauge_flows.data.ensembles.chains import make_chains
from pipeline_gauge_flows.data.formats import READERS, Configuration
from pipeline_gauge_flows.data.lattice import Lattice


@dataclass(frozen=True)
class Sample:
    """One configuration.

    Attributes:
        links: (D, V, N, N) complex128.
        chain: Number of its Markov chain.
        group: Group that a split may keep together.
        source: File or chain it comes from, for messages.
    """

    links: NDArray[np.complex128]
    chain: int
    group: str
    source: str

    def make_fields(self) -> dict[str, NDArray[Any]]:
        """Return the fields for a file; see `storage.make_configuration_fields`."""
        texts = {"group": np.asarray(self.group), "source": np.asarray(self.source)}
        return {"links": self.links, "chain": np.asarray(self.chain), **texts}


class Origin(Protocol):
    """Source of configurations."""

    def __iter__(self) -> Iterator[Sample]:
        """Yield the configurations, in order within each chain."""
        ...

    def summarize(self) -> dict[str, Any]:
        """Return statistics of all configurations, JSON-able; to be called after the last."""
        ...

    def hash_files(self) -> dict[str, str]:
        """Return the SHA-256 of each file by name."""
        ...


class GeneratedEnsemble:
    """Configurations from Markov chains.

    Args:
        action: The action.
        lattice: The lattice.
        options: Options of the chains.
    """

    def __init__(
        self, action: ActionOptions, lattice: Lattice, options: HeatbathOptions | HmcOptions
    ) -> None:
        self._options = options
        self._length = options.n_configurations // options.chains
        self._chains = make_chains(action, lattice, options, self._length * options.separation)

    def __iter__(self) -> Iterator[Sample]:
        """Thermalise, then yield one configuration of each chain in turn."""
        options = self._options
        for _ in range(options.thermalisation):
            self._chains.update()
        self._chains.begin()
        for number in range(1, self._length + 1):
            for _ in range(options.separation):
                self._chains.update()
            for chain, links in enumerate(self._chains.links.numpy()):
                name, update = f"chain-{chain:04d}", number * options.separation
                yield Sample(links.copy(), chain, name, f"{options.method}:{name}:{update}")

    def summarize(self) -> dict[str, Any]:
        """Return statistics of the updates.

        Raises:
            ValueError: No update was accepted.
        """
        facts = self._chains.summarize()
        if facts["acceptance"] == 0:
            raise ValueError("generate: no trajectory was accepted; raise generate.n_steps")
        return {"method": self._options.method, **facts}

    def hash_files(self) -> dict[str, str]:
        """Return an empty mapping: there are no files."""
        return {}


class FileEnsemble:
    """Configurations from files.

    Args:
        sources: The sources.
        files: Names and paths of the files of each source.
        lattice: Required lattice.
        action: Required action.
    """

    def __init__(
        self,
        sources: Sequence[FileSource],
        files: Sequence[Mapping[str, Path]],
        lattice: Lattice,
        action: ActionOptions,
    ) -> None:
        self._sources, self._files = sources, files
        self._lattice, self._action = lattice, action

    def __iter__(self) -> Iterator[Sample]:
        """Yield the configurations in the natural order of their file names.

        Raises:
            ValueError: A file is damaged, or has another lattice or action.
        """
        for number, (source, files) in enumerate(zip(self._sources, self._files, strict=True)):
            for name in sorted(files, key=_split_numbers):
                configuration = READERS[source.reader](files[name])
                self._require_match(name, configuration)
                group = name if source.group == "file" else f"source-{number}"
                yield Sample(configuration.links, number, group, name)

    def summarize(self) -> dict[str, Any]:
        """Return the number of files."""
        return {"files": [len(files) for files in self._files]}

    def hash_files(self) -> dict[str, str]:
        """Return the hashes of all files."""
        return {n: provenance.hash_file(path) for files in self._files for n, path in files.items()}

    def _require_match(self, name: str, configuration: Configuration) -> None:
        theirs = configuration.lattice
        if theirs != self._lattice:
            raise ValueError(
                f"{name}: SU({theirs.n_colours}) on {list(theirs.extents)} sites "
                f"(t, x, y, z), but the dataset has SU({self._lattice.n_colours}) on "
                f"{list(self._lattice.extents)}; correct `lattice`, or remove the file"
            )
        if configuration.action not in (None, self._action):
            raise ValueError(
                f"{name}: was drawn from the action {configuration.action!r}, but the "
                f"dataset has {self._action!r}; correct `action`, or remove the file"
            )


def _split_numbers(name: str) -> list[int | str]:
    """Split a name at its numbers, so that `lat.90` comes before `lat.100`."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
