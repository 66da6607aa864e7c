"""Ionic steps of a vasprun.xml, one at a time, without its eigenvalues and densities of states.

Energies of a step, under VASP's names: `e_fr_energy` is the free energy, with the forces as its
gradient, `e_0_energy` its extrapolation to zero smearing, `e_wo_entrp` the energy without the
entropy. VASP writes the latter two wrongly at the end of a step
(https://www.vasp.at/forum/viewtopic.php?t=16942), and leaves dispersion corrections out of energies
of electronic steps; hence both are taken as their difference to the free energy in the last
electronic step, added to the free energy of the ionic step. The latter includes the work of
PSTRESS, which is subtracted.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, Final
from xml.etree import ElementTree as ET

import numpy as np

from pipeline_atoms.readers import BadFrame, Floats, Frame
from pipeline_atoms.readers.frame_checks import find_atomic_numbers
from pipeline_core.units import find_factor

_BULKY: Final = {"eigenvalues", "projected", "dos", "dielectricfunction", "dynmat"}
_GARBLED: Final = {"X": "Xe", "r": "Zr"}  # as VASP writes these two elements
_MOST_STEPS, _MOST_ATOMS = 10**6, 10**7
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d*)?(?:E[+-]?\d+)?|-?\.\d+|NaN|\*+")
_ENERGIES: Final = ("e_fr_energy", "e_0_energy", "e_wo_entrp")


def iterate_frames(file: BinaryIO) -> Iterator[Frame | BadFrame]:
    """Read the steps of a run.

    Args:
        file: The XML text.

    Yields:
        Each ionic step with its labels under VASP's names: the three energies, forces, stress. A
        step with an electronic loop that reached NELM is bad, as is the last one of a truncated
        file.
    """
    run = _Run()
    index = 0
    try:
        for element in _iterate_elements(file):
            if element.tag in _BULKY:
                element.clear()
            elif element.tag == "atominfo":
                run.set_atoms(element)
            elif element.tag == "parameters":
                run.set_parameters(element)
            elif element.tag == "calculation":
                yield run.step(element, index)
                element.clear()
                index += 1
    except ValueError as error:
        raise ValueError(f"its header cannot be read: {error}") from error
    except ET.ParseError as error:
        yield BadFrame(index, f"truncated or damaged XML ({error}); what follows is lost")


def _iterate_elements(file: BinaryIO) -> Iterator[ET.Element]:
    try:
        for _, element in ET.iterparse(file):  # noqa: S314 - expat 2.4.1 and later stops entity bombs
            yield element
    except LookupError as error:  # unknown encoding
        raise ET.ParseError(str(error)) from error


class _Run:
    """Common data of the steps of a run."""

    def __init__(self) -> None:
        self.numbers = np.zeros(0, dtype=np.int32)
        self.max_electronic_steps = 60
        self.pressure = 0.0  # eV/Å³

    def set_atoms(self, element: ET.Element) -> None:
        atoms = [_read_words(row) for row in element.iterfind("array[@name='atoms']/set/rc")]
        types = [_read_words(row) for row in element.iterfind("array[@name='atomtypes']/set/rc")]
        if not atoms or any(len(row) < 2 for row in (*atoms, *types)):
            raise ValueError("the list of the atoms cannot be read")
        expected = [(row[1], k) for k, row in enumerate(types, start=1) for _ in range(_count(row))]
        if types and [(row[0], int(row[1])) for row in atoms] != expected:
            raise ValueError("the lists of atoms and of their types do not agree")
        symbols = [row[0] for row in atoms]
        self.numbers = find_atomic_numbers([_GARBLED.get(symbol, symbol) for symbol in symbols])

    def set_parameters(self, element: ET.Element) -> None:
        steps = _read_number(element, ".//i[@name='NELM']", 60)
        if not 1 <= steps <= _MOST_STEPS:
            raise ValueError(f"NELM is {steps:g}, not a number of steps")
        self.max_electronic_steps = int(steps)
        self.pressure = _read_number(element, ".//i[@name='PSTRESS']", 0.0) * find_factor(
            "stress", "kbar"
        )

    def step(self, element: ET.Element, index: int) -> Frame | BadFrame:
        n_steps = len(element.findall("scstep"))
        if n_steps >= self.max_electronic_steps:
            return BadFrame(index, f"electronic steps did not converge within NELM = {n_steps}")
        try:
            return self._make_frame(element, index)
        except (ValueError, TypeError) as error:
            return BadFrame(index, f"step cannot be read ({error})")

    def _make_frame(self, element: ET.Element, index: int) -> Frame:
        cell = _read_rows(element, "structure/crystal/varray[@name='basis']")
        fractional = _read_rows(element, "structure/varray[@name='positions']")
        work = self.pressure * float(abs(np.linalg.det(cell)))
        labels = {name: np.array(value) for name, value in _read_energies(element, work).items()}
        for name in ("forces", "stress"):
            if element.find(f"varray[@name='{name}']") is not None:
                labels[name] = _read_rows(element, f"varray[@name='{name}']")
        return Frame(
            atomic_numbers=self.numbers,
            positions=fractional @ cell,
            cell=cell,
            pbc=np.ones(3, dtype=bool),
            labels=labels,
            index=index,
        )


def _read_words(row: ET.Element) -> list[str]:
    return [(cell.text or "").strip() for cell in row]


def _count(row: list[str]) -> int:
    n_atoms = int(row[0])
    if not 0 < n_atoms < _MOST_ATOMS:
        raise ValueError(f"a type of {n_atoms} atoms")
    return n_atoms


def _read_energies(element: ET.Element, work: float) -> dict[str, float]:
    free = _read_number(element, "energy/i[@name='e_fr_energy']") - work
    electronic = element.findall("scstep/energy")[-1:]
    if not electronic:
        return {"e_fr_energy": free}
    last = {name: _read_number(electronic[0], f"i[@name='{name}']", np.nan) for name in _ENERGIES}
    shifted = {name: round(free + last[name] - last["e_fr_energy"], 8) for name in _ENERGIES}
    return {name: energy for name, energy in shifted.items() if np.isfinite(energy)}


def _read_number(element: ET.Element, path: str, default: float | None = None) -> float:
    text = element.findtext(path)
    if text is None and default is not None:
        return default
    if text is None:
        raise ValueError(f"{path} is missing")
    return _parse_number(text.strip())


def _parse_number(word: str) -> float:
    """Parse a number as VASP writes it; NaN if it overflowed its column."""
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"{word!r} is not a number")
    return np.nan if word[0] in "*N" else float(word)


def _read_rows(element: ET.Element, path: str) -> Floats:
    rows = element.find(path)
    if rows is None:
        raise ValueError(f"{path} is missing")
    numbers = [[_parse_number(word) for word in (row.text or "").split()] for row in rows]
    return np.array(numbers, dtype=np.float64)
