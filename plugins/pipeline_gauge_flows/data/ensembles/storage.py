"""File `data.h5` of a lattice gauge theory: lattice, action, and configurations if any."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_core.artifacts.samples import SampleFile, SampleWriter
from pipeline_core.fields import FIELDS, SPLITS, Field
from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.data.lattice import Lattice


def make_configuration_fields(lattice: Lattice) -> list[Field]:
    """Return the fields of a configuration."""
    planes = (len(lattice.planes),)
    return [
        Field("links", lattice.shape, "1", "sample", "c16", "U_mu(x) leads from x to x + mu."),
        Field("plaquette", planes, "1", "sample", "f8", "Mean of Re tr P / N in each plane."),
        Field("action", (), "1", "sample", "f8", "Action S of the gauge field.", exact=True),
        Field("chain", (), "1", "sample", "i4", "Markov chain, whose configurations are in order."),
        FIELDS["group"],
        FIELDS["source"],
    ]


def write_theory(
    writer: SampleWriter, lattice: Lattice, action: ActionOptions, statistics: Any
) -> None:
    """Write the data common to all configurations of a file; statistics are JSON-able."""
    theory = {"lattice": asdict(lattice), "action": action.model_dump(mode="json")}
    for key, value in {**theory, "statistics": statistics}.items():
        writer.attributes[key] = json.dumps(value)


class Ensemble:
    """Lattice, action and configurations of a `data.h5`, with random access; small files in memory.

    Args:
        path: The file.

    Attributes:
        lattice: The lattice.
        action: Action of the configurations.
        tau_int: Autocorrelation time of the plaquette in configurations; None if unknown.
        split: (n,) index in `SPLITS`.
        chain: (n,) number of the Markov chain.

    Raises:
        ValueError: The file is missing, damaged, or of another kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SampleFile(path, "data")
        try:
            self._read_attributes()
        except ValueError:
            self.close()
            raise

    def _read_attributes(self) -> None:
        if "lattice" not in self._file.attributes:
            raise ValueError(
                f"{self.path}: holds no lattice gauge theory; give the experiment a dataset with "
                "`plugin: gauge_flows`"
            )
        texts = {k: json.loads(self._file.attributes[k]) for k in ("lattice", "action")}
        self.lattice = Lattice(tuple(texts["lattice"]["extents"]), texts["lattice"]["n_colours"])
        self.action = ActionOptions.model_validate(texts["action"])
        statistics = json.loads(self._file.attributes["statistics"])
        self.tau_int: float | None = statistics and statistics["plaquette"]["tau_int"]
        self.split: NDArray[np.int8] = self._file.read_column("split")
        self.chain = self._read_chain()

    def _read_chain(self) -> NDArray[np.int32]:
        """Return the chain of each configuration; older files hold only its group."""
        if "chain" in self._file.fields:
            chain: NDArray[np.int32] = self._file.read_column("chain")
            return chain
        _, numbers = np.unique(self._file.read_column("group"), return_inverse=True)
        return numbers.astype(np.int32)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._file.n_samples

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def select(self, *splits: str) -> NDArray[np.int64]:
        """Return the indices of the configurations in some splits, in order."""
        return np.flatnonzero(np.isin(self.split, [SPLITS.index(name) for name in splits]))

    def read_links(self, numbers: Sequence[int]) -> Tensor:
        """Return configurations by index, (n, D, V, N, N) complex128."""
        configurations = [self._file.read(int(number))["links"] for number in numbers]
        shape = (len(configurations), *self.lattice.shape)
        return torch.from_numpy(np.array(configurations, dtype=np.complex128).reshape(shape))

    def require(self, lattice: Lattice, action: ActionOptions) -> None:
        """Check the lattice and the action of the configurations.

        Raises:
            ValueError: They differ.
        """
        for name, ours, expected in (
            ("lattice", self.lattice, lattice),
            ("action", self.action, action),
        ):
            if ours != expected:
                raise ValueError(
                    f"{self.path}: its configurations have the {name} {ours!r}, not {expected!r}; "
                    "choose another dataset"
                )
