"""Report of the data stage on matrices: the report file and the summary on the screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.config.datasets import Split
from pipeline_core.data.duplicates import describe_duplicates
from pipeline_core.fields import SPLITS
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import BlockMatrix

_WIDTH: Final = 1.0
"""Å, of a shell of distances"""
_LISTED_GROUPS: Final = 200


class Report:
    """Statistics of a dataset of matrices, collected structure by structure.

    Args:
        name: Name of the dataset.
        split: Division of the dataset.
    """

    def __init__(self, name: str, split: Split) -> None:
        self._name, self._split = name, split
        self._groups: list[str] = []
        self._n_atoms: Counter[int] = Counter()
        self._n_blocks = 0
        self._facts: dict[str, list[float]] = {}
        self._decay: dict[int, list[tuple[int, float, float]]] = {}

    def add(self, matrix: BlockMatrix, group: str, facts: Mapping[str, float]) -> None:
        """Add one structure; the largest value of each number in `facts` is reported."""
        self._groups.append(group)
        self._n_atoms[len(matrix.structure.atomic_numbers)] += 1
        self._n_blocks += len(matrix.block_atoms)
        for key, value in facts.items():
            self._facts.setdefault(key, []).append(value)
        for shell in np.unique(matrix.lengths // _WIDTH).astype(int):
            chosen = np.repeat(matrix.lengths // _WIDTH == shell, matrix.shapes.prod(axis=1))
            size = np.abs(matrix.hamiltonian[chosen])
            entry = (len(size), float(size.sum()), float(size.max()))
            self._decay.setdefault(int(shell), []).append(entry)

    def make_content(
        self, basis: Basis, codes: NDArray[np.int8], duplicates: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the report.

        Args:
            basis: Basis of all structures.
            codes: Split of each structure, (n_samples,).
            duplicates: Facts about equal structures.
        """
        counts = {name: int(np.count_nonzero(codes == i)) for i, name in enumerate(SPLITS)}
        return {
            "dataset": self._name,
            "samples": len(codes),
            "warnings": [
                *self._list_warnings(counts),
                *describe_duplicates(duplicates, "the structure"),
            ],
            "duplicates": duplicates,
            "atoms": {str(n): count for n, count in sorted(self._n_atoms.items())},
            "blocks": self._n_blocks,
            "basis": {symbol: list(shells) for symbol, shells in basis.shells.items()},
            "common_shells": list(basis.common),
            "split_method": self._split.method,
            "splits": counts,
            "groups": self._count_divided(codes),
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

    def _count_divided(self, codes: NDArray[np.int8]) -> dict[str, Any]:
        table: dict[str, dict[str, int]] = {}
        for group, code in zip(self._groups, codes, strict=True):
            row = table.setdefault(group, dict.fromkeys(SPLITS, 0))
            row[SPLITS[code]] += 1
        largest = sorted(table.items(), key=lambda item: -sum(item[1].values()))
        return {"count": len(table), "largest": dict(largest[:_LISTED_GROUPS])}

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

    def _list_warnings(self, counts: Mapping[str, int]) -> list[str]:
        wanted = {"val": self._split.val, "test": self._split.test}
        warnings = [
            f"no structure is in the split {name!r}"
            for name, fraction in wanted.items()
            if fraction > 0 and counts[name] == 0
        ]
        if len(set(self._groups)) > 1 and self._split.method == "random":
            warnings.append(
                "structures of one group are in several splits: for frames of one trajectory the "
                "test measures interpolation; split by group or list"
            )
        return warnings
