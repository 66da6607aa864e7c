"""Evaluations in a CP2K output, with the quantities printed for each, in Hartree, Bohr and GPa.

Layouts of versions 6 to 2026 are supported; they differ in the spelling of the units of the energy,
in the table of the forces (prefix `FORCES|` since 2025) and in the table of the stress (prefix
`STRESS|` since 8.1).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.readers import Floats
from pipeline_atoms.readers.frame_checks import find_atomic_numbers
from pipeline_core.units import find_factor

_ENERGY: Final = re.compile(
    r" *ENERGY\| Total FORCE_EVAL \([ \w]+\) energy [\[(][\w.]+[\])]:? +(-?\d+\.\d+)"
)
_NUMBER: Final = re.compile(r"-?\d+\.\d*(?:E[+-]\d+)?")
_FORCES: Final = ("ATOMIC FORCES in [a.u.]", "FORCES| Atomic forces [hartree/bohr]")
_BEFORE_THE_ENERGY: Final = ("ATOMIC COORDINATES IN", "SCF run NOT converged", " CELL| Vector")
_AFTER_THE_ENERGY: Final = (
    " MD| Step number", " STEP NUMBER ", "Informations at step", " OPT| Step number",
    "PROGRAM ENDED AT",
)  # fmt: skip
_SAME_LENGTH: Final = 0.01  # Å; components have three decimals
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
    """One evaluation of the energy, with the quantities printed for it.

    Attributes:
        energy: Total energy.
        complete: True if the program continued, or ended, after all of it was printed.
        converged: True if the self-consistency loop converged.
        atomic_numbers: (n_atoms,) Z, if the structure is printed.
        positions: (n_atoms, 3), Å, if printed.
        cell: Lattice vectors by name, a, b and c, Å, if printed.
        forces: (n_atoms, 3), if printed.
        elements: Symbols in the table of the forces; empty in newer versions.
        stress: (3, 3), if printed.
        problem: Reading error, if any.
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
    """Incremental reader of an output: its header, and the evaluations one by one.

    Attributes:
        header: project, run_type, input_name and ensemble, once they have been read.
        periodic: Periodic directions as printed, or "".
    """

    file: InitVar[TextIO]
    header: dict[str, str] = field(default_factory=dict)
    periodic: str = ""

    def __post_init__(self, file: TextIO) -> None:
        self._lines = _Lines(file)

    def read_evaluations(self) -> Iterator[Evaluation]:
        """Yield the evaluations in order.

        Structure and convergence are printed before the energy, forces and stress after it.
        Quantities without an energy make an evaluation with a problem.
        """
        present, coming, pending = None, Evaluation(), False  # pending: computed, but no energy yet
        for line in self._lines:
            if "PROGRAM STARTED AT" in line:  # a run may be appended to a truncated one
                if present:
                    yield present
                present, coming, pending = None, Evaluation(), False
            elif line.startswith(" ENERGY|") or "Total FORCE_EVAL" in line:
                if present:
                    present.complete = True
                    yield present
                present, coming, pending = coming, Evaluation(), False
                self._try(self._read_energy, line, present)
            elif self._lacks_energy(line, present, pending):
                if present:
                    present.complete = True
                    yield present
                present, coming, pending = coming, Evaluation(), False
                present.problem = (
                    f"the line ENERGY| of this evaluation is missing or damaged, above line "
                    f"{self._lines.number}: {line.strip()!r}"
                )
                self._try(self._read, line, present)
            else:
                pending = pending or "SCF run converged" in line or "SCF run NOT" in line
                before = any(word in line for word in _BEFORE_THE_ENERGY)
                self._try(self._read, line, coming if before else present or coming)
        if present:
            yield present

    @staticmethod
    def _lacks_energy(line: str, present: Evaluation | None, pending: bool) -> bool:
        """Return True if a line belongs to an evaluation without an energy so far."""
        forces = any(title in line for title in _FORCES)
        if forces or _is_stress(line):
            has_it = present is not None and (present.forces if forces else present.stress)
            return pending or present is None or has_it is not None
        return pending and any(word in line for word in _AFTER_THE_ENERGY)

    def _try(
        self, read: Callable[[str, Evaluation], None], line: str, evaluation: Evaluation
    ) -> None:
        number = self._lines.number
        try:
            read(line, evaluation)
        except (ValueError, IndexError) as error:
            evaluation.problem = evaluation.problem or (
                f"line {number}, {line.strip()!r}, or the table below: {error}"
            )

    def _read_energy(self, line: str, evaluation: Evaluation) -> None:
        match = _ENERGY.fullmatch(line.rstrip())
        if match is None:
            raise ValueError("is not a line of an energy")
        evaluation.energy = float(match[1])

    def _read(self, line: str, evaluation: Evaluation) -> None:
        if "ATOMIC COORDINATES IN" in line:
            unit = line.rsplit(maxsplit=1)[-1].strip("[]").lower()
            evaluation.atomic_numbers, evaluation.positions = self._read_coordinates(
                find_factor("length", unit)
            )
        elif "SCF run NOT converged" in line:
            evaluation.converged = False
        elif match := _VECTOR.match(line):
            evaluation.cell[match[1]] = _parse_vector(match[2], match[3])
        elif any(title in line for title in _FORCES):
            evaluation.elements, evaluation.forces = self._read_forces()
        elif _is_stress(line) and (match := _STRESS.search(line)):
            evaluation.stress = self._read_matrix() * (
                find_factor("stress", match[1]) / find_factor("stress", "GPa")
            )
        elif line.startswith((" CELL| Periodicity", " POISSON| Periodicity")):
            self.periodic = line.rsplit(maxsplit=1)[-1]
        elif "PROGRAM ENDED AT" in line:
            evaluation.complete = True
        elif (key := next((k for k in _HEADER if line.startswith(k)), None)) is not None:
            self.header[_HEADER[key]] = line[len(key) :].strip()

    def _read_coordinates(self, unit: float) -> tuple[NDArray[np.int32], Floats]:
        rows, _ = self._read_table()  # atom, kind, element, Z, x, y, z, Z(eff), mass
        if any(len(row) != 9 for row in rows):
            raise ValueError("a line of the coordinates has not 9 columns")
        numbers = find_atomic_numbers([row[2] for row in rows])
        if numbers.tolist() != [int(row[3]) for row in rows]:
            raise ValueError("elements and atomic numbers do not agree")
        return numbers, _parse_floats([row[4:7] for row in rows]) * unit

    def _read_forces(self) -> tuple[list[str], Floats]:
        rows, end = self._read_table()  # atom, kind, element, x, y, z; or atom, x, y, z, length
        widths = {len(row) for row in rows}
        if widths not in ({6}, {5}) or "sum" not in end.lower():
            raise ValueError(f"the table of the forces is not whole: it ends at {end.strip()!r}")
        if widths == {5}:
            return [], _parse_floats([row[1:4] for row in rows])
        return [row[2] for row in rows], _parse_floats([row[3:6] for row in rows])

    def _read_table(self) -> tuple[list[list[str]], str]:
        """Read the rows numbered 1, 2, ... below a heading, and the line that ends them."""
        rows: list[list[str]] = []
        for n_lines, line in enumerate(self._lines):
            words = line.replace("FORCES|", "").split()
            if words and words[0] == str(len(rows) + 1):
                rows.append(words)
            elif rows or n_lines > 3:
                return rows, line
        return rows, ""

    def _read_matrix(self) -> Floats:
        """Read three rows labelled x, y and z, (3, 3)."""
        rows: list[list[str]] = []
        for n_lines, line in enumerate(self._lines):
            words = line.replace("STRESS|", "").split()
            if len(words) == 4 and words[0].lower() == "xyz"[len(rows)]:
                rows.append(words[1:])
            elif rows:
                break
            if len(rows) == 3:
                return _parse_floats(rows)
            if n_lines > 5:
                break
        raise ValueError("the rows x, y and z of the stress do not follow each other")


class _Lines:
    """The lines of an output, with the number of the last one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline():
            self.number += 1
            yield line


def _is_stress(line: str) -> bool:
    return "STRESS" in line and _STRESS.search(line) is not None and "igenv" not in line.lower()


def _parse_floats(rows: list[list[str]]) -> Floats:
    wrong = next((word for row in rows for word in row if not _NUMBER.fullmatch(word)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is not a number")
    return np.array(rows, dtype=np.float64)


def _parse_vector(text: str, length: str) -> Floats:
    """Parse a lattice vector; its length is printed with more digits than its components."""
    ((*components, size),) = _parse_floats([[*text.split(), length]])
    vector = np.array(components)
    norm = float(np.linalg.norm(vector))
    if vector.shape != (3,) or abs(norm - size) > _SAME_LENGTH:
        raise ValueError(f"the components of the vector give the length {norm:g}, not {size:g}")
    return vector * (size / norm) if norm else vector
