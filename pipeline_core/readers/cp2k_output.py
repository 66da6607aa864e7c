"""The evaluations in a CP2K output: what is printed for each, in Hartree, Bohr and GPa.

Layouts of versions 6 to 2026 are known; they differ in the spelling of the units of the energy, in
the table of the forces (with the prefix `FORCES|` since 2025) and in that of the stress (with the
prefix `STRESS|` since 8.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

from pipeline_core.readers import Floats
from pipeline_core.units import find_factor

_STRESS: Final = re.compile(r"stress tensor \[(\w+)\]", re.IGNORECASE)
_VECTOR: Final = re.compile(r" CELL\| Vector ([abc]) \[angstrom\]:(.*)\|[abc]\| = *(\S+)")
_HEADER: Final = {
    " GLOBAL| Project name": "project",
    " GLOBAL| Run type": "run_type",
    " CP2K| Input file name": "input_name",
    " MD_PAR| Ensemble type": "ensemble",
    " MD| Ensemble Type": "ensemble",
}


@dataclass
class Evaluation:
    """One evaluation of the energy, with what is printed for it.

    Attributes:
        energy: Total energy.
        complete: Whether the program went on, or ended, after all of it was printed.
        converged: Whether the self-consistency loop converged.
        atomic_numbers: (n_atoms,) Z, if the structure is printed.
        positions: (n_atoms, 3), Å, if printed.
        cell: Lattice vectors by name, a, b and c, Å, if printed.
        forces: (n_atoms, 3), if printed.
        elements: Symbols in the table of the forces; empty in newer versions.
        stress: (3, 3), if printed.
        problem: What could not be read.
    """

    energy: float = np.nan
    complete: bool = False
    converged: bool = True
    atomic_numbers: NDArray[np.int32] | None = None
    positions: Floats | None = None
    cell: dict[str, Floats] = field(default_factory=dict)
    forces: Floats | None = None
    elements: list[str] = field(default_factory=list)
    stress: Floats | None = None
    problem: str = ""


@dataclass
class Output:
    """An output that is being read: its header, and the evaluations one by one.

    Attributes:
        header: project, run_type, input_name and ensemble, as far as they have been read.
        periodic: Periodic directions as printed, or "".
    """

    lines: TextIO
    header: dict[str, str] = field(default_factory=dict)
    periodic: str = ""

    def read_evaluations(self) -> Iterator[Evaluation]:
        """Yield the evaluations in order.

        Structure and convergence are printed before the energy, forces and stress after it.
        """
        present, coming = None, Evaluation()
        for line in self.lines:
            if "PROGRAM STARTED AT" in line:  # a run may be appended to one that was cut
                if present:
                    yield present
                present, coming = None, Evaluation()
            elif "ENERGY| Total FORCE_EVAL" in line:
                if present:
                    present.complete = True
                    yield present
                present, coming = coming, Evaluation()
                present.energy = float(line.split()[-1])
            else:
                self._try(line, coming, present or coming)
        if present:
            yield present

    def _try(self, line: str, coming: Evaluation, present: Evaluation) -> None:
        try:
            self._read(line, coming, present)
        except ValueError as error:
            present.problem = f"{line.strip()!r} or the table below: {error}"

    def _read(self, line: str, coming: Evaluation, present: Evaluation) -> None:
        if "ATOMIC COORDINATES IN" in line:
            unit = line.rsplit(maxsplit=1)[-1].strip("[]").lower()
            coming.atomic_numbers, coming.positions = self._read_coordinates(
                find_factor("length", unit)
            )
        elif "SCF run NOT converged" in line:
            coming.converged = False
        elif match := _VECTOR.match(line):
            coming.cell[match[1]] = _parse_vector(match[2], float(match[3]))
        elif "ATOMIC FORCES in [a.u.]" in line or "FORCES| Atomic forces [hartree/bohr]" in line:
            present.elements, present.forces = self._read_forces()
        elif "STRESS" in line and (match := _STRESS.search(line)) and "igenv" not in line.lower():
            present.stress = self._read_matrix() * (
                find_factor("stress", match[1]) / find_factor("stress", "GPa")
            )
        elif line.startswith((" CELL| Periodicity", " POISSON| Periodicity")):
            self.periodic = line.rsplit(maxsplit=1)[-1]
        elif "PROGRAM ENDED AT" in line:
            present.complete = True
        elif (key := next((k for k in _HEADER if line.startswith(k)), None)) is not None:
            self.header[_HEADER[key]] = line[len(key) :].strip()

    def _read_coordinates(self, unit: float) -> tuple[NDArray[np.int32], Floats]:
        rows = self._read_table()  # atom, kind, element, Z, x, y, z, Z(eff), mass
        numbers = np.array([row[3] for row in rows], dtype=np.int32)
        return numbers, np.array([row[4:7] for row in rows], dtype=np.float64) * unit

    def _read_forces(self) -> tuple[list[str], Floats]:
        rows = self._read_table()  # atom, kind, element, x, y, z; or atom, x, y, z, length
        old = all(len(row) == 6 for row in rows)
        forces = np.array([row[3:6] if old else row[1:4] for row in rows], dtype=np.float64)
        return [row[2] for row in rows] if old else [], forces

    def _read_table(self) -> list[list[str]]:
        """Read the rows that begin with a number, below a few lines of heading."""
        rows: list[list[str]] = []
        for n_lines, line in enumerate(self.lines):
            words = line.replace("FORCES|", "").split()
            if words and words[0].isdigit():
                rows.append(words)
            elif rows or n_lines > 3:
                break
        return rows

    def _read_matrix(self) -> Floats:
        """Read three rows labelled x, y and z, (3, 3)."""
        rows: list[list[str]] = []
        for n_lines, line in enumerate(self.lines):
            words = line.replace("STRESS|", "").split()
            if len(words) == 4 and words[0] in "xyzXYZ":
                rows.append(words[1:])
            if len(rows) == 3 or n_lines > 5:
                break
        return np.array(rows, dtype=np.float64)


def _parse_vector(text: str, length: float) -> Floats:
    """Return a lattice vector; its length is printed with more digits than its components."""
    vector = np.array(text.split(), dtype=np.float64)
    return vector * (length / np.linalg.norm(vector)) if vector.any() else vector
