"""Ionic steps of an OUTCAR, one at a time.

An OUTCAR has fewer digits than a vasprun.xml, but also the magnetic moments of the sites.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TextIO

import numpy as np

from pipeline_atoms.readers import BadFrame, Floats, Frame
from pipeline_atoms.readers.frame_checks import find_atomic_numbers

_ITERATION: Final = re.compile(r"- Iteration +(\d+)\( *(\d+)\)")
_NELM: Final = re.compile(r"\s+NELM +=\s*(\d+)")
_NUMBER: Final = re.compile(r"-?\d+\.\d+|NaN|\*+")  # columns of fixed width may touch, or overflow
_NUMBERS: Final = re.compile(rf"\s*(?:(?:{_NUMBER.pattern})\s*)+")
_TOTEN: Final = re.compile(r"free +energy +TOTEN +=\s*(\S+) eV")
_OTHERS: Final = re.compile(r"energy +without entropy=\s*(\S+) +energy\(sigma->0\) =\s*(\S+)")
_ELEMENT: Final = re.compile(r"TITEL +=\s*\S+\s+([A-Z][a-z]?)")


def iterate_frames(file: TextIO) -> Iterator[Frame | BadFrame]:
    """Read the steps of a run.

    Args:
        file: Lines of the OUTCAR.

    Yields:
        Each ionic step with its labels under VASP's names: e_fr_energy, e_0_energy, e_wo_entrp,
        forces, stress and, for collinear runs with LORBIT, magmoms. A step with an electronic loop
        that reached NELM is bad (older versions print even then that EDIFF was reached), as is an
        unfinished one.
    """
    state = _State()
    for line in file:
        if " Iteration " in line and (match := _ITERATION.search(line)):
            if int(match[1]) > state.index + 1:
                yield state.make_frame()
                state.begin_step()
            state.n_iterations = int(match[2])
            continue
        try:
            (state.read_step if state.n_iterations else state.read_header)(line, file)
        except (ValueError, LookupError):
            state.problem = f"cannot be read at or below the line {line.strip()!r}"
    yield state.make_frame()


@dataclass
class _State:
    """Data of the run and of its present step, as read so far."""

    symbols: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    cell: Floats = field(default_factory=lambda: np.zeros((3, 3)))
    positions: Floats | None = None
    labels: dict[str, Floats] = field(default_factory=dict)
    n_iterations: int = 0
    max_iterations: int = 60
    converged: bool = False
    collinear: bool = True
    problem: str = ""
    index: int = 0

    def begin_step(self) -> None:
        self.positions, self.labels, self.converged, self.problem = None, {}, False, ""
        self.index += 1

    def read_header(self, line: str, _: TextIO) -> None:
        """Parse a line before the first electronic step."""
        if "TITEL" in line and (match := _ELEMENT.search(line)):
            self.symbols.append(match[1])
        elif "ions per type =" in line:
            self.counts = [int(count) for count in line.partition("=")[2].split()]
        elif match := _NELM.match(line):
            self.max_iterations = int(match[1])

    def read_step(self, line: str, file: TextIO) -> None:
        """Parse a line of the present step; tables below it are read from `file`."""
        if "direct lattice vectors" in line and "reciprocal" in line:
            self.cell = np.array([_parse_fixed_width(row) for row in islice(file, 3)])
        elif "aborting loop because EDIFF is reached" in line:
            self.converged = True
        elif line.startswith("  in kB"):
            xx, yy, zz, xy, yz, zx = _parse_numbers(line.removeprefix("  in kB"))
            self.labels["stress"] = np.array([[xx, xy, zx], [xy, yy, yz], [zx, yz, zz]])
        elif "free  energy   TOTEN" in line:  # two spaces: of the ions; one: of an electronic step
            (self.labels["e_fr_energy"],) = _parse_energy(_TOTEN, line)
        elif "energy  without entropy=" in line:
            energies = _parse_energy(_OTHERS, line)
            self.labels["e_wo_entrp"], self.labels["e_0_energy"] = energies
        elif "TOTAL-FORCE" in line:
            table = self._read_table(file, skip=1, n_columns=6)
            self.positions, self.labels["forces"] = table[:, :3], table[:, 3:]
        elif "magnetization (x)" in line:
            self.labels["magmoms"] = self._read_moments(file)
        elif "magnetization (y)" in line:
            self.collinear = False

    def _read_table(self, file: TextIO, skip: int, n_columns: int) -> Floats:
        """Read one line per atom between two lines of dashes, (n_atoms, n_columns)."""
        n_atoms = sum(self.counts)
        _require_dashes([*islice(file, skip)][-1:])
        rows = [_parse_numbers(row) for row in islice(file, n_atoms)]
        _require_dashes([*islice(file, 1)])
        if any(len(row) != n_columns for row in rows):
            raise ValueError(f"a line has not {n_columns} numbers")
        return np.array(rows, dtype=np.float64).reshape(n_atoms, n_columns)

    def _read_moments(self, file: TextIO) -> Floats:
        """Read the last column of the table of moments, with numbered lines, (n_atoms,)."""
        _require_dashes([*islice(file, 3)][-1:])
        moments = []
        for number, row in enumerate(islice(file, sum(self.counts)), start=1):
            word, *_ = row.split()
            if word != str(number):
                raise ValueError(f"{row.strip()!r} is not the line of atom {number}")
            moments.append(_parse_numbers(row.replace(word, "", 1))[-1])
        _require_dashes([*islice(file, 1)])
        return np.array(moments, dtype=np.float64)

    def make_frame(self) -> Frame | BadFrame:
        """Return the present step as a frame."""
        problem = self.problem or next(self._find_problems(), "")
        if problem or self.positions is None:
            return BadFrame(self.index, problem)
        symbols = np.repeat(self.symbols, self.counts).tolist()
        labels = {n: value for n, value in self.labels.items() if n != "magmoms" or self.collinear}
        return Frame(
            atomic_numbers=find_atomic_numbers(symbols),
            positions=self.positions,
            cell=self.cell,
            pbc=np.ones(3, dtype=bool),
            labels=labels,
            index=self.index,
        )

    def _find_problems(self) -> Iterator[str]:
        if self.positions is None or "e_fr_energy" not in self.labels:
            yield "truncated: the OUTCAR ends before the step does"
        if not self.converged or self.n_iterations >= self.max_iterations:
            yield f"electronic steps did not converge within NELM = {self.max_iterations}"
        if len(self.symbols) != len(self.counts):
            yield "the OUTCAR does not name the elements; read the vasprun.xml instead"


def _require_dashes(lines: Sequence[str]) -> None:
    """Check for the line of dashes at which a table begins or ends."""
    if [line.strip().strip("-") for line in lines] != [""]:
        raise ValueError("the table has not a line for each atom")


def _parse_numbers(text: str) -> list[float]:
    """Parse a text of numbers; numbers that overflowed their column are NaN.

    Raises:
        ValueError: The text contains something else.
    """
    if not _NUMBERS.fullmatch(text):
        raise ValueError(f"{text.strip()!r} is not a list of numbers")
    return [float(n) if n[0] != "*" else np.nan for n in _NUMBER.findall(text)]


def _parse_energy(pattern: re.Pattern[str], line: str) -> list[Floats]:
    """Parse a line of energies, which must match the pattern."""
    match = pattern.fullmatch(line.strip())
    if match is None:
        raise ValueError("is not a line of energies")
    return [np.array(_parse_numbers(number)[0]) for number in match.groups()]


def _parse_fixed_width(row: str) -> list[float]:
    """Parse the three numbers of a direct lattice vector, followed by a reciprocal one."""
    columns = [row[start : start + 13] for start in (3, 16, 29)]
    if row[:3].strip() or not all(re.fullmatch(r" *-?\d+\.\d{9}", text) for text in columns):
        raise ValueError(f"{row.strip()!r} is not a lattice vector")
    return [float(text) for text in columns]
