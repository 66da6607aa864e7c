"""Energies of free atoms, by least squares of total energies on compositions.

    E_i ≈ Σ_z N_iz e_z   for the samples i of the training split,

N_iz the number of atoms of element z in sample i. Samples of one composition enter as their mean
with the weight √n, which gives the same e as all samples one by one; blocks of compositions are
reduced by QR, so that memory does not grow with their number and nothing is squared.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from ase.data import chemical_symbols
from numpy.typing import NDArray

from pipeline_atoms.importing.columns import Columns, Compositions
from pipeline_core.data.duplicates import Ints

Floats = NDArray[np.float64]

_BLOCK: Final = 8192
_RANK_TOLERANCE: Final = 1e-10  # of the largest singular value
_MIXED: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class ReferenceEnergies:
    """Reference energies and how well they are determined.

    Attributes:
        method: "least_squares", "given" or "none".
        energies: Chemical symbol to energy, eV.
        n_samples: Number of training samples by chemical symbol; with an energy, if any has one.
        rank: Number of independent combinations that the fit determines; None without a fit.
        not_separable: Elements with energies that the data do not separate: the fit takes the
            solution of least norm.
        rms_before: Root mean square of the energy per atom over the training split, eV/atom.
        rms_after: The same without the reference energies.
    """

    method: str
    energies: Mapping[str, float]
    n_samples: Mapping[str, int]
    rank: int | None = None
    not_separable: Sequence[str] = ()
    rms_before: float | None = None
    rms_after: float | None = None

    def report(self) -> dict[str, Any]:
        """Return the reference energies as JSON-able values."""
        return vars(self) | {"not_separable": list(self.not_separable)}


def fit_reference_energies(
    columns: Columns,
    training: NDArray[np.bool_],
    choice: str | Mapping[str, float],
    largest: float,
) -> ReferenceEnergies:
    """Fit the reference energies of a dataset, take the given ones, or use none.

    Args:
        columns: Columns of the samples.
        training: True for training samples, (n_samples,).
        choice: "least_squares", "none", or energies in eV by chemical symbol.
        largest: Largest accepted magnitude of a fitted energy, eV.

    Raises:
        ValueError: A fitted energy is too large, or a given one is missing.
    """
    with_energy = training & np.isfinite(columns.energy)
    used = with_energy if with_energy.any() else training
    composition = columns.composition[used]
    counts = np.bincount(composition, minlength=len(columns.compositions))
    coverage = _count_coverage(columns.compositions, counts)
    n_samples = {chemical_symbols[z]: n for z, n in coverage.items()}
    if choice == "none" or (choice == "least_squares" and not with_energy.any()):
        return ReferenceEnergies(method="none", energies={}, n_samples=n_samples)
    if isinstance(choice, str):
        elements = np.array([z for z, n in coverage.items() if n > 0])
        energy = columns.energy[used]
        sums: Floats = np.bincount(composition, energy, len(counts)).astype(np.float64)
        solution, rank, mixed = _fit(columns.compositions, counts, sums, elements)
        energies = _name_by_symbol(coverage, elements, solution)
        _require_sane(energies, largest)
        method, not_separable = "least_squares", [chemical_symbols[z] for z in elements[mixed]]
    else:
        _require_all(choice, n_samples)
        energies, rank, method, not_separable = dict(choice), None, "given", []
    return ReferenceEnergies(
        method=method,
        energies=energies,
        n_samples=n_samples,
        rank=rank,
        not_separable=not_separable,
        rms_before=_compute_rms(columns.energy[used] / columns.n_atoms[used]),
        rms_after=_compute_rms(compute_remainders(columns, energies)[used]),
    )


def compute_remainders(columns: Columns, energies: Mapping[str, float]) -> Floats:
    """Compute energy minus reference energies, eV/atom, (n_samples,); NaN if missing.

    Args:
        columns: Columns of the samples.
        energies: Reference energies by chemical symbol, eV.
    """
    table = np.array([energies.get(symbol, 0.0) for symbol in chemical_symbols])
    predicted = np.array([table[elements] @ numbers for elements, numbers in columns.compositions])
    return np.asarray((columns.energy - predicted[columns.composition]) / columns.n_atoms)


def _count_coverage(compositions: Compositions, counts: Ints) -> dict[int, int]:
    """Return the number of counted samples with each element of the dataset."""
    coverage: dict[int, int] = {}
    for (elements, _), n in zip(compositions, counts.tolist(), strict=True):
        for z in elements.tolist():
            coverage[z] = coverage.get(z, 0) + n
    return dict(sorted(coverage.items()))


def _fit(
    compositions: Compositions, counts: Ints, sums: Floats, elements: Ints
) -> tuple[Floats, int, NDArray[np.bool_]]:
    """Solve the least-squares problem.

    Returns:
        Energies of the elements, the rank, and a mask of elements that are not separable.
    """
    n_elements = len(elements)
    triangle = np.zeros((0, n_elements + 1))
    used = np.flatnonzero(counts)
    means = sums[used] / counts[used]
    weights = np.sqrt(counts[used])
    rows = _count_elements(compositions, counts > 0, elements)
    for start in range(0, len(used), _BLOCK):
        part = slice(start, start + _BLOCK)
        block = np.column_stack([np.array(list(islice(rows, _BLOCK))), means[part]])
        triangle = np.asarray(
            np.linalg.qr(np.vstack([triangle, block * weights[part, None]]), mode="r")
        )
    left, singular, right = np.linalg.svd(triangle[:, :n_elements], full_matrices=False)
    rank = int(np.count_nonzero(singular > _RANK_TOLERANCE * singular[0]))
    coefficients = left.T[:rank] @ triangle[:, n_elements] / singular[:rank]
    # The data do not determine the part of each element's axis outside the row space.
    outside = 1 - np.sum(right[:rank] ** 2, axis=0)
    return right[:rank].T @ coefficients, rank, outside > _MIXED


def _count_elements(
    compositions: Compositions, used: NDArray[np.bool_], elements: Ints
) -> Iterator[Floats]:
    """Yield the number of atoms of each element in each used composition, (n_elements,)."""
    for (present, numbers), wanted in zip(compositions, used, strict=True):
        if wanted:
            row = np.zeros(len(elements))
            row[np.searchsorted(elements, present)] = numbers
            yield row


def _name_by_symbol(
    coverage: Mapping[int, int], elements: Ints, solution: Floats
) -> dict[str, float]:
    """Return energies by symbol; zero, the least norm, for elements without training samples."""
    fitted = dict(zip(elements.tolist(), solution.tolist(), strict=True))
    return {chemical_symbols[z]: fitted.get(z, 0.0) for z in coverage}


def _require_sane(energies: Mapping[str, float], largest: float) -> None:
    absurd = {symbol: energy for symbol, energy in energies.items() if abs(energy) > largest}
    if absurd:
        listed = ", ".join(f"{symbol} {energy:.6g} eV" for symbol, energy in absurd.items())
        raise ValueError(
            f"the fitted reference energies are absurd: {listed}, above max_reference_energy = "
            f"{largest:g} eV; check units.energy of the sources and that no two methods are mixed, "
            "or raise max_reference_energy if all electrons are counted"
        )


def _require_all(given: Mapping[str, float], elements: Mapping[str, int]) -> None:
    missing = [symbol for symbol in elements if symbol not in given]
    if missing:
        raise ValueError(
            f"reference_energies gives no energy for {', '.join(missing)}, which the dataset "
            "contains; add them, or use least_squares"
        )
    strange = [symbol for symbol in given if symbol not in chemical_symbols[1:]]
    if strange:
        raise ValueError(
            f"reference_energies: {strange[0]!r} is not an element; write its symbol, such as O"
        )


def _compute_rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))
