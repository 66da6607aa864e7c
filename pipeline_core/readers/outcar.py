"""Ionic steps of an OUTCAR, one at a time.

An OUTCAR has fewer digits than a vasprun.xml, but the magnetic moments of the sites, which the XML
lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TextIO

import numpy as np

from pipeline_core.readers import BadFrame, Floats, Frame
from pipeline_core.readers.checks import find_atomic_numbers

_ITERATION: Final = re.compile(r"- Iteration +(\d+)\( *(\d+)\)")
_NELM: Final = re.compile(r"\s+NELM +=\s*(\d+)")
_NUMBER: Final = re.compile(r"-?\d+\.\d+|NaN|\*+")  # columns of fixed width may touch, or overflow
_ELEMENT: Final = re.compile(r"TITEL +=\s*\S+\s+([A-Z][a-z]?)")


def iterate_frames(file: TextIO) -> Iterator[Frame | BadFrame]:
    """Read the steps of a run.

    Args:
        file: Lines of the OUTCAR.

    Yields:
        Each ionic step with its labels under VASP's names: e_fr_energy, e_0_energy, e_wo_entrp,
        forces, stress and, for collinear runs with LORBIT, magmoms. A step whose electronic loop
        ran into NELM is bad (older versions say even then that EDIFF was reached), as is an
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
    """What has been read of the run and of its present step."""

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
        """Take what a line says before the first electronic step."""
        if "TITEL" in line and (match := _ELEMENT.search(line)):
            self.symbols.append(match[1])
        elif "ions per type =" in line:
            self.counts = [int(count) for count in line.partition("=")[2].split()]
        elif match := _NELM.match(line):
            self.max_iterations = int(match[1])

    def read_step(self, line: str, file: TextIO) -> None:
        """Take what a line says of the present step; tables below it are read from `file`."""
        if "direct lattice vectors" in line and "reciprocal" in line:
            self.cell = np.array([_parse_fixed_width(row) for row in islice(file, 3)])
        elif "aborting loop because EDIFF is reached" in line:
            self.converged = True
        elif line.startswith("  in kB"):
            xx, yy, zz, xy, yz, zx = _parse_numbers(line)
            self.labels["stress"] = np.array([[xx, xy, zx], [xy, yy, yz], [zx, yz, zz]])
        elif "free  energy   TOTEN" in line:  # two spaces: of the ions; one: of an electronic step
            self.labels["e_fr_energy"] = np.array(_parse_numbers(line)[0])
        elif "energy  without entropy=" in line:
            without_entropy, _, extrapolated = line.partition("energy(sigma->0)")
            self.labels["e_wo_entrp"] = np.array(_parse_numbers(without_entropy)[0])
            self.labels["e_0_energy"] = np.array(_parse_numbers(extrapolated)[0])
        elif "TOTAL-FORCE" in line:
            table = self._read_table(file, skip=1, columns=slice(6))
            self.positions, self.labels["forces"] = table[:, :3], table[:, 3:]
        elif "magnetization (x)" in line:
            self.labels["magmoms"] = self._read_table(file, skip=3, columns=slice(-1, None))[:, 0]
        elif "magnetization (y)" in line:
            self.collinear = False

    def _read_table(self, file: TextIO, skip: int, columns: slice) -> Floats:
        """Read one line an atom, (n_atoms, n_columns)."""
        n_atoms = sum(self.counts)
        rows = [_parse_numbers(row)[columns] for row in islice(file, skip, skip + n_atoms)]
        return np.array(rows, dtype=np.float64).reshape(n_atoms, -1)

    def make_frame(self) -> Frame | BadFrame:
        """Return the step that has been read."""
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


def _parse_numbers(text: str) -> list[float]:
    """Return the numbers of a line; what overflowed its column is NaN."""
    return [float(n) if n[0] != "*" else np.nan for n in _NUMBER.findall(text)]


def _parse_fixed_width(row: str) -> list[float]:
    return [float(row[start : start + 13]) for start in (3, 16, 29)]
