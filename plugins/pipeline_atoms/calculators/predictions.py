"""Predictions of a trained model for structures of files, and their errors against labels.

Frames are read, predicted and written one by one, so that files may be larger than memory.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError, all_properties
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.extxyz import write_xyz
from ase.stress import voigt_6_to_full_3x3_stress
from numpy.typing import NDArray

from pipeline_atoms.calculators.committee import Committee
from pipeline_atoms.importing.frames import make_sample
from pipeline_atoms.importing.sources import compute_factors
from pipeline_atoms.readers import BadFrame, Reader
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.frame_checks import LABELS
from pipeline_atoms.structure import Structure
from pipeline_core.artifacts.store import write_atomic
from pipeline_core.evaluation.metrics import Errors
from pipeline_core.fields import find_field

Floats = NDArray[np.float64]
Sample = Mapping[str, NDArray[Any]]

_NAME: Final = re.compile(r"[A-Za-z][\w.-]*")
_TAKEN: Final = {
    *(*all_properties, "energy_uncertainty", "forces_uncertainty"),
    *("Lattice", "Properties", "pbc", "species", "pos", "Z"),
}
"""Keys of a frame that are not copied, since predictions or the structure take their place."""


@dataclass(frozen=True)
class FrameSummary:
    """Summary of a frame.

    Attributes:
        file: File of the frame.
        frame: Number of the frame in the file, from 0.
        formula: Chemical formula.
        n_atoms: Number of atoms.
        energy_per_atom: Predicted energy, eV; None if the model predicts no energy.
        largest_force: Largest length of a predicted force, eV/Å; None without forces.
        energy_uncertainty: Half width of the 95 % interval, eV/atom; None without a committee.
        force_uncertainty: Largest half width of a force component, eV/Å; likewise.
    """

    file: str
    frame: int
    formula: str
    n_atoms: int
    energy_per_atom: float | None
    largest_force: float | None
    energy_uncertainty: float | None = None
    force_uncertainty: float | None = None


class Comparison:
    """Errors of predictions against the labels of files, accumulated frame by frame.

    Energies are compared per atom, with and without their mean difference: energies of two methods
    or of two pseudopotentials differ by a constant for each element.
    """

    def __init__(self) -> None:
        self._errors: dict[str, Errors] = {}
        self._energies: list[float] = []  # prediction minus label per atom, one a frame

    def add(self, predicted: Mapping[str, Floats], labels: Mapping[str, Floats]) -> None:
        """Add a frame, in the engine's units; quantities without prediction or label are skipped.

        Args:
            predicted: Name to prediction.
            labels: Name to label of the file; also `positions`.
        """
        for name in predicted.keys() & labels.keys():
            shown, share = (
                ("energy_per_atom", len(labels["positions"])) if name == "energy" else (name, 1)
            )
            label, error = labels[name] / share, (predicted[name] - labels[name]) / share
            if name == "energy":
                self._energies.append(float(error))
            self._errors[shown] = self._errors.get(shown, Errors()) + Errors.of(error, label)

    def report(self) -> dict[str, dict[str, Any]]:
        """Return the metrics of each compared quantity, in the engine's units.

        For the energy of several frames they include `mean_difference` and `mae_without_mean`.
        """
        units = {"energy_per_atom": "eV/atom"}
        report: dict[str, dict[str, Any]] = {
            name: self._errors[name].report(units.get(name) or find_field(name).unit)
            for name in ("energy_per_atom", *LABELS)
            if name in self._errors
        }
        if len(self._energies) > 1:
            mean = float(np.mean(self._energies))
            rest = float(np.abs(np.array(self._energies) - mean).mean())
            report["energy_per_atom"] |= {"mean_difference": mean, "mae_without_mean": rest}
        return report


def predict_files(
    files: Mapping[Path, Reader], keys: Mapping[str, str], calculator: Calculator, output: Path
) -> tuple[list[FrameSummary], dict[str, dict[str, Any]]]:
    """Predict all frames of files, and write them atomically into one file of extended XYZ.

    Args:
        files: Path to format.
        keys: Field names to the names of the labels in the files; empty for the formats' own names.
        calculator: Gives energy, forces, stress and magnetic moments, if it can.
        output: The file to write: structures, further information of their frames, and predictions
            in eV, eV/Å, eV/Å³ (tension positive) and µB; the stress if all three directions are
            periodic.

    Returns:
        A summary per frame; and the errors against labels of the files, see `Comparison.report`.

    Raises:
        ValueError: A file or a frame of it cannot be read, the model refuses a frame, or `output`
            cannot be written.
    """
    summaries, comparison = list[FrameSummary](), Comparison()
    with write_atomic(output) as temporary, temporary.open("w", encoding="utf-8") as sink:
        for path, reader in files.items():
            for number, sample, atoms in _read_structures(path, reader, keys):
                try:
                    predicted = _predict(atoms, calculator)
                except ValueError as error:
                    formula = atoms.get_chemical_formula()
                    raise ValueError(f"{path}: frame {number} ({formula}): {error}") from error
                comparison.add(predicted, sample)
                _note_uncertainty(atoms, calculator)
                summaries.append(_summarize(atoms, predicted, path, number))
                atoms.calc = SinglePointCalculator(atoms, **_make_results(predicted))
                write_xyz(sink, atoms)
    return summaries, comparison.report()


def _read_structures(
    path: Path, reader: Reader, keys: Mapping[str, str]
) -> Iterator[tuple[int, Sample, Atoms]]:
    """Yield number, arrays with labels, and atoms of each frame, in the engine's units."""
    factors = compute_factors(reader.units, f"reader {reader.name!r}")
    for frame in open_frames(path, reader, keys):
        if isinstance(frame, BadFrame):
            raise ValueError(
                f"{path}: frame {frame.index}: {frame.reason}; repair or remove the frame"
            )
        sample = make_sample(frame, list(frame.labels), factors)
        atoms = Structure.of_fields(sample).make_atoms()
        atoms.info = {k: v for k, v in frame.info.items() if _NAME.fullmatch(k) and k not in _TAKEN}
        yield frame.index, sample, atoms


def _predict(atoms: Atoms, calculator: Calculator) -> dict[str, Floats]:
    """Return the labels that a calculator predicts, the stress as (3, 3)."""
    wanted = [name for name in LABELS if name != "stress" or atoms.pbc.all()]
    predicted: dict[str, Floats] = {}
    for name in wanted:
        with suppress(PropertyNotImplementedError):
            predicted[name] = np.asarray(calculator.get_property(name, atoms))
    if "stress" in predicted:
        predicted["stress"] = voigt_6_to_full_3x3_stress(predicted["stress"])
    return predicted


def _make_results(predicted: Mapping[str, Floats]) -> dict[str, Any]:
    """Return predictions in ASE's form: the energy is a number, the rest are arrays."""
    return {n: float(value) if n == "energy" else value for n, value in predicted.items()}


def _note_uncertainty(atoms: Atoms, calculator: Calculator) -> None:
    """Add the uncertainties of a committee: `energy_uncertainty`, `forces_uncertainty`."""
    results = calculator.results if isinstance(calculator, Committee) else {}
    if "energy_uncertainty" in results:
        atoms.info["energy_uncertainty"] = results["energy_uncertainty"]
    if "forces_uncertainty" in results:
        atoms.arrays["forces_uncertainty"] = results["forces_uncertainty"]


def _summarize(
    atoms: Atoms, predicted: Mapping[str, Floats], path: Path, number: int
) -> FrameSummary:
    energy, forces = predicted.get("energy"), predicted.get("forces")
    return FrameSummary(
        file=str(path),
        frame=number,
        formula=atoms.get_chemical_formula(),
        n_atoms=len(atoms),
        energy_per_atom=None if energy is None else float(energy) / len(atoms),
        largest_force=None if forces is None else float(np.linalg.norm(forces, axis=1).max()),
        energy_uncertainty=_divide(atoms.info.get("energy_uncertainty"), len(atoms)),
        force_uncertainty=_find_largest(atoms.arrays.get("forces_uncertainty")),
    )


def _divide(energy: float | None, n_atoms: int) -> float | None:
    return None if energy is None else energy / n_atoms


def _find_largest(values: Floats | None) -> float | None:
    return None if values is None else float(values.max())
