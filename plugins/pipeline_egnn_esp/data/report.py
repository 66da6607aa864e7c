"""Report of the data stage on matrices: the report file and the summary on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from pipeline_atoms.importing.columns import Columns
from pipeline_core.config.datasets import Split
from pipeline_core.data.duplicates import describe_duplicates
from pipeline_core.data.splits import Codes, count_groups, count_splits
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import BlockMatrix

_WIDTH: Final = 1.0
"""Å, of a shell of distances"""


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
        self._decay: dict[int, list[tuple[int, float, float]]] = {}

    def add(self, matrix: BlockMatrix, facts: Mapping[str, float]) -> None:
        """Add one structure; the largest value of each number in `facts` is reported."""
        self._n_blocks += len(matrix.block_atoms)
        for key, value in facts.items():
            self._facts.setdefault(key, []).append(value)
        for shell in np.unique(matrix.lengths // _WIDTH).astype(int):
            chosen = np.repeat(matrix.lengths // _WIDTH == shell, matrix.shapes.prod(axis=1))
            size = np.abs(matrix.hamiltonian[chosen])
            entry = (len(size), float(size.sum()), float(size.max()))
            self._decay.setdefault(int(shell), []).append(entry)

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
        counts, groups = count_splits(codes), count_groups(columns.groups, columns.group, codes)
        sizes, of_size = np.unique(columns.n_atoms, return_counts=True)
        return {
            "dataset": self._name,
            "samples": len(codes),
            "warnings": [
                *self._list_warnings(counts, len(columns.groups)),
                *describe_duplicates(duplicates, "the structure"),
            ],
            "duplicates": duplicates,
            "atoms": dict(zip(map(str, sizes.tolist()), of_size.tolist(), strict=True)),
            "blocks": self._n_blocks,
            "basis": {symbol: list(shells) for symbol, shells in basis.shells.items()},
            "common_shells": list(basis.common),
            "split_method": self._split.method,
            "splits": counts,
            "groups": groups,
            "largest": {key: max(values) for key, values in self._facts.items()},
            "hamiltonian_by_distance": self._tabulate_by_distance(),
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

    def _tabulate_by_distance(self) -> list[dict[str, float]]:
        """Return the mean and the largest magnitude of H, eV, by the distance of the atoms, Å."""
        rows = []
        for shell, parts in sorted(self._decay.items()):
            n, total, largest = (np.array(column) for column in zip(*parts, strict=True))
            rows.append(
                {
                    "from": shell * _WIDTH,
                    "to": (shell + 1) * _WIDTH,
                    "elements": int(n.sum()),
                    "mean": float(total.sum() / n.sum()),
                    "largest": float(largest.max()),
                }
            )
        return rows

    def _list_warnings(self, counts: Mapping[str, int], n_groups: int) -> list[str]:
        wanted = {"val": self._split.val, "test": self._split.test}
        warnings = [
            f"no structure is in the split {name!r}"
            for name, fraction in wanted.items()
            if fraction > 0 and counts[name] == 0
        ]
        if n_groups > 1 and self._split.method == "random":
            warnings.append(
                "structures of one group are in several splits: for frames of one trajectory the "
                "test measures interpolation; split by group or list"
            )
        return warnings
