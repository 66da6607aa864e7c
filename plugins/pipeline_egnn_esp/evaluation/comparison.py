"""Errors of predicted matrices by distance and of their levels, with the two-centre baseline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Final

import numpy as np
from ase.data import atomic_numbers as number_of
from ase.data import chemical_symbols
from ase.dft.kpoints import monkhorst_pack
from ase.formula import Formula
from numpy.typing import NDArray

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.evaluation.metrics import Errors
from pipeline_egnn_esp.data.bands import compute_levels
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import BlockMatrix, join_matrices
from pipeline_egnn_esp.data.samples import UNITS
from pipeline_egnn_esp.options import ESPEvaluateOptions, ESPOptions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MODELS: Final = ("zero", "two_centre", "model")
"""Compared models: a matrix of zeros, the two-centre baseline, the network."""


@dataclass(frozen=True)
class PredictedMatrix:
    """Blocks of one structure, all or some of them, with their predictions.

    Attributes:
        matrix: Blocks, with the zero of energies of the labels.
        energy_zero: Energy in the data of this zero, eV.
        predicted: Entries by the network and by the two-centre baseline, (n_entries,) each.
    """

    matrix: BlockMatrix
    energy_zero: float
    predicted: Mapping[str, Floats]

    def take(self, blocks: Ints) -> PredictedMatrix:
        """Return the blocks with these numbers, in this order."""
        entries = self.matrix.find_entries(blocks)
        predicted = {name: values[entries] for name, values in self.predicted.items()}
        return PredictedMatrix(self.matrix.take(blocks), self.energy_zero, predicted)


def join_blocks(parts: Sequence[PredictedMatrix]) -> PredictedMatrix:
    """Return blocks of one structure, one part after the other."""
    predicted = {
        name: np.concatenate([part.predicted[name] for part in parts])
        for name in parts[0].predicted
    }
    matrix = join_matrices([part.matrix for part in parts])
    return PredictedMatrix(matrix, parts[0].energy_zero, predicted)


class Comparison:
    """Errors of a split.

    Ranks that divide structures each compare their own blocks; the sums are reduced at the end.

    Args:
        options: Options of the model.
        section: Section `evaluate`.
    """

    def __init__(self, options: ESPOptions, section: ESPEvaluateOptions) -> None:
        self._options, self._section = options, section
        self._errors: dict[tuple[str, str], Errors] = defaultdict(Errors)
        self._groups: dict[tuple[str, str], Errors] = defaultdict(Errors)
        self._shells: dict[tuple[int, str], Errors] = defaultdict(Errors)
        self._levels: dict[str, list[tuple[Floats, int]]] = defaultdict(list)
        self._without_levels = 0
        self.n_samples = 0

    def add(self, blocks: PredictedMatrix, group: str | None) -> None:
        """Compare one structure, or the blocks of it on this rank."""
        self.n_samples += 1
        matrix, target = blocks.matrix, self._options.target
        label: Floats = getattr(matrix, target)
        sizes = matrix.shapes.prod(axis=1)
        shell = np.repeat((matrix.lengths // self._section.shell_width).astype(int), sizes)
        on_site = np.repeat(matrix.is_on_site, sizes)
        for name, predicted in {"zero": np.zeros_like(label), **blocks.predicted}.items():
            error = predicted - label
            parts = {"on_site": on_site, "off_site": ~on_site}
            for part, rows in parts.items():
                errors = Errors.of(error[rows], label[rows])
                self._errors[part, name] += errors
                if name == "model" and group is not None:
                    self._groups[group, part] += errors
            for number in np.unique(shell[~on_site]):
                rows = (shell == number) & ~on_site
                self._shells[int(number), name] += Errors.of(error[rows], label[rows])

    def admit_levels(self, matrix: BlockMatrix) -> bool:
        """Return True if the levels of a structure, whole or in part in `matrix`, are compared.

        Structures with too many orbitals are counted.
        """
        if self._options.target != "hamiltonian":
            return False
        is_large = matrix.n_orbitals > self._section.dense_orbitals
        self._without_levels += is_large
        return not is_large

    def add_levels(self, whole: PredictedMatrix) -> None:
        """Compare the levels of one structure, given all of its blocks."""
        matrix = whole.matrix
        periodic = matrix.structure.pbc
        counts = [n if p else 1 for n, p in zip(self._section.k_points, periodic, strict=True)]
        k = monkhorst_pack(counts)
        n_occupied = _count_occupied(matrix, self._section.electrons)
        exact = compute_levels(matrix, k)
        for name, hamiltonian in whole.predicted.items():
            error = compute_levels(replace(matrix, hamiltonian=hamiltonian), k) - exact
            self._levels[name].append((error, n_occupied))

    def add_ranks(self, ranks: Ranks) -> None:
        """Reduce the sums over blocks of all ranks to rank 0; all ranks call it."""
        own: tuple[dict[Any, Any], ...] = (self._errors, self._groups, self._shells)
        for tables in ranks.gather_on_zero(own)[1:]:
            for table, other in zip(own, tables, strict=True):
                for key, sums in other.items():
                    table[key] += sums

    def report_quantities(self) -> dict[str, Any]:
        """Return the errors of the network in the layout of the engine."""
        return self._make_table(
            {part: self._errors[part, "model"] for part in ("on_site", "off_site")}
        )

    def report_groups(self) -> dict[str, Any]:
        """Return the errors by group of structures."""
        parts = ("on_site", "off_site")
        names = sorted({group for group, _ in self._groups})
        return {g: self._make_table({p: self._groups[g, p] for p in parts}) for g in names}

    def report(self) -> dict[str, Any]:
        """Return the comparison with baselines.

        Returns:
            `on_site` and `off_site`: MAE of zero, of the two-centre baseline and of the network;
            `shells`: the same by distance, with `from` and `to`, Å, and the number of elements;
            `relative`: Frobenius norm of the error over the norm of the matrix; `levels`: None for
            overlaps, else for each model but zero `occupied` and `all`, eV, with mae, max_error,
            and `aligned_mae`, the MAE after the mean error of each structure is subtracted;
            `without_levels`: number of structures too large for levels.
        """
        width, parts = self._section.shell_width, ("on_site", "off_site")
        # Both blocks of a hermitian pair count in the norm of a matrix.
        on, off = ({n: self._errors[part, n].square for n in MODELS} for part in parts)
        norm = on["zero"] + 2 * off["zero"]
        return {
            "n_samples": self.n_samples,
            **{
                part: _compare_with_baseline({name: self._errors[part, name] for name in MODELS})
                for part in parts
            },
            "relative": {n: sqrt((on[n] + 2 * off[n]) / norm) if norm else None for n in MODELS},
            "shells": [
                {
                    "from": number * width,
                    "to": (number + 1) * width,
                    **_compare_with_baseline({name: self._shells[number, name] for name in MODELS}),
                }
                for number in sorted({number for number, _ in self._shells})
            ],
            "levels": {name: _join_levels(levels) for name, levels in self._levels.items()} or None,
            "without_levels": self._without_levels,
        }

    def summarize(self) -> dict[str, str]:
        """Return the figures that the stage shows at its end."""
        report, unit = self.report(), UNITS[self._options.target]
        numbers = {
            f"MAE {part}": f"{report[part]['model']:.4g} {unit}, "
            f"distances alone {report[part]['two_centre']:.4g} {unit}"
            for part in ("on_site", "off_site")
            if report[part]["count"]
        }
        for kind, errors in (report["levels"] or {}).get("model", {}).items():
            numbers[f"MAE levels {kind}"] = f"{errors['mae']:.4g} eV"
        if self._without_levels:
            numbers["levels not compared"] = (
                f"{self._without_levels} structures of more than evaluate.dense_orbitals "
                f"({self._section.dense_orbitals})"
            )
        return numbers

    def _make_table(self, parts: Mapping[str, Errors]) -> dict[str, Any]:
        target, off = self._options.target, parts["off_site"]
        errors = {
            target: parts["on_site"] + off + off,
            f"{target}_on_site": parts["on_site"],
            f"{target}_off_site": off,
        }
        return {name: of_target.report(UNITS[target]) for name, of_target in errors.items()}


def require_electrons(basis: Basis, electrons: Mapping[str, int]) -> None:
    """Check that each element has a number of electrons that its orbitals can hold, or none has.

    Raises:
        ValueError: It does not.
    """
    for symbol in basis.shells if electrons else ():
        if symbol not in electrons:
            raise ValueError(
                f"evaluate.electrons lacks {symbol}; give the electrons of an atom of "
                "each element, or of none"
            )
        n_orbitals = basis.count_orbitals(number_of[symbol])
        if electrons[symbol] > 2 * n_orbitals:
            raise ValueError(
                f"evaluate.electrons: {electrons[symbol]} of {symbol}, but its {n_orbitals} "
                f"orbitals hold {2 * n_orbitals}; give the electrons that the calculation treats, "
                "without the core"
            )


def _count_occupied(matrix: BlockMatrix, electrons: Mapping[str, int]) -> int:
    if not electrons:
        return 0
    symbols = [chemical_symbols[z] for z in matrix.structure.atomic_numbers]
    count = sum(electrons[symbol] for symbol in symbols)
    if count % 2:
        raise ValueError(
            f"evaluate.electrons: a structure ({Formula.from_list(symbols):hill}) has {count} "
            "electrons, an odd number, so that one level is half occupied; correct the numbers, or "
            "give none"
        )
    return count // 2


def _join_levels(levels: list[tuple[Floats, int]]) -> dict[str, dict[str, float]]:
    """Return the errors of the levels of several structures.

    Args:
        levels: Errors, (n_k, n_levels) eV, and the number of occupied levels, 0 if unknown.
    """
    parts = {"all": [error for error, _ in levels]}
    if all(n_occupied for _, n_occupied in levels):
        parts["occupied"] = [error[:, :n_occupied] for error, n_occupied in levels]
    return {
        kind: {
            "mae": float(np.concatenate([np.abs(e).ravel() for e in errors]).mean()),
            "aligned_mae": float(
                np.concatenate([np.abs(e - e.mean()).ravel() for e in errors]).mean()
            ),
            "max_error": float(max(np.abs(e).max() for e in errors)),
        }
        for kind, errors in parts.items()
    }


def _compare_with_baseline(errors: Mapping[str, Errors]) -> dict[str, Any]:
    """Return the number of elements, and the MAE of each model."""
    count = errors["model"].count
    mae = {name: of_model.absolute / count if count else None for name, of_model in errors.items()}
    return {"count": count, **mae}
