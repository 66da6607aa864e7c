"""Report of the data stage on matrices: the report file and the summary on the screen."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline_atoms.importing.columns import Columns
from pipeline_core.config.datasets import Split
from pipeline_core.data.duplicates import describe_duplicates
from pipeline_core.data.splits import Codes, count_groups, count_splits, list_empty_splits
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import BlockMatrix


class Report:
    """Statistics of a dataset of matrices, collected structure by structure.

    Args:
        name: Name of the dataset.
        split: Division of the dataset.
    """

    def __init__(self, name: str, split: Split) -> None:
        self._name, self._split = name, split
        self._n_blocks = 0
        self._facts: dict[str, list[float]] = {}

    def add(self, matrix: BlockMatrix, facts: Mapping[str, float]) -> None:
        """Add one structure; the largest value of each number in `facts` is reported."""
        self._n_blocks += len(matrix.block_atoms)
        for key, value in facts.items():
            self._facts.setdefault(key, []).append(value)

    def make_content(
        self, basis: Basis, columns: Columns, codes: Codes, duplicates: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the report.

        Args:
            basis: Basis of all structures.
            columns: Columns of the structures.
            codes: Split of each structure, (n_samples,).
            duplicates: Facts about equal structures.
        """
        sizes, of_size = np.unique(columns.n_atoms, return_counts=True)
        return {
            "dataset": self._name,
            "samples": len(codes),
            "warnings": [
                *self._list_warnings(codes, len(columns.groups)),
                *describe_duplicates(duplicates, "the structure"),
            ],
            "duplicates": duplicates,
            "atoms": dict(zip(map(str, sizes.tolist()), of_size.tolist(), strict=True)),
            "blocks": self._n_blocks,
            "basis": {symbol: list(shells) for symbol, shells in basis.shells.items()},
            "common_shells": list(basis.common),
            "split_method": self._split.method,
            "splits": count_splits(codes),
            "groups": count_groups(columns.groups, columns.group, codes),
            "largest": {key: max(values) for key, values in self._facts.items()},
        }

    def summarize(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return the figures that the stage shows at its end."""
        return {
            "samples": content["samples"],
            **content["splits"],
            "groups": content["groups"]["count"],
            "blocks": content["blocks"],
            "basis": content["basis"],
            "warnings": content["warnings"],
        }

    def _list_warnings(self, codes: Codes, n_groups: int) -> list[str]:
        empty = list_empty_splits(codes, self._split)
        warnings = [f"no structure is in the split {name!r}" for name in empty]
        if n_groups > 1 and self._split.method == "random":
            warnings.append(
                "structures of one group are in several splits: for frames of one trajectory the "
                "test measures interpolation; split by group or list"
            )
        return warnings
