"""Sources of configurations: Markov chains and files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        """Return statistics of the updates, JSON-able; to be called after the last.

        Raises:
            ValueError: No update was accepted.
        """
        facts = self._chains.summarize()
        if facts["acceptance"] == 0:
            raise ValueError("generate: no trajectory was accepted; raise generate.n_steps")
        return {"method": self._options.method, **facts}


def read_ensemble(
    sources: Sequence[FileSource],
    files: Sequence[Mapping[str, Path]],
    lattice: Lattice,
    action: ActionOptions,
) -> Iterator[Sample]:
    """Yield configurations from files in the natural order of their names.

    Args:
        sources: The sources, each of which is one Markov chain.
        files: Names and paths of the files of each source.
        lattice: Required lattice.
        action: Required action.

    Raises:
        ValueError: A file is damaged, or has another lattice or action.
    """
    for number, (source, paths) in enumerate(zip(sources, files, strict=True)):
        for name in sorted(paths, key=_split_numbers):
            configuration = READERS[source.reader](paths[name])
            _require_match(name, configuration, lattice, action)
            group = name if source.group == "file" else f"source-{number}"
            yield Sample(configuration.links, number, group, name)


def _require_match(
    name: str, configuration: Configuration, lattice: Lattice, action: ActionOptions
) -> None:
    theirs = configuration.lattice
    if theirs != lattice:
        raise ValueError(
            f"{name}: SU({theirs.n_colours}) on {list(theirs.extents)} sites "
            f"(t, x, y, z), but the dataset has SU({lattice.n_colours}) on "
            f"{list(lattice.extents)}; correct `lattice`, or remove the file"
        )
    if configuration.action not in (None, action):
        raise ValueError(
            f"{name}: was drawn from the action {configuration.action!r}, but the "
            f"dataset has {action!r}; correct `action`, or remove the file"
        )


def _split_numbers(name: str) -> list[int | str]:
    """Split a name at its numbers, so that `lat.90` comes before `lat.100`."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
