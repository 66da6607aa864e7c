"""The structure in a CP2K input: cell and coordinates, with all their digits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.readers import Floats
from pipeline_atoms.readers.extxyz import Block, split_blocks
from pipeline_atoms.readers.frame_checks import find_atomic_numbers
from pipeline_atoms.structure import Structure
from pipeline_core.data.files import open_text
from pipeline_core.units import find_factor

_SYMBOL: Final = re.compile(r"[A-Za-z]{1,2}")


@dataclass
class _Section:
    """A section of an input: its lines as words, and its subsections by name."""

    parameter: str = ""
    lines: list[list[str]] = field(default_factory=list)
    sections: dict[str, list[_Section]] = field(default_factory=dict)

    def find_section(self, *names: str) -> _Section:
        """Return the first subsection along a path of names, empty if there is none."""
        section = self
        for name in names:
            section = section.sections.get(name, [_Section()])[0]
        return section

    def find_words(self, keyword: str) -> list[str] | None:
        """Return the words after a keyword, or None if it is not given."""
        return next((line[1:] for line in self.lines if line[0].upper() == keyword), None)


def read_structure(path: Path) -> Structure:
    """Read cell and coordinates of an input.

    Args:
        path: The input, plain or compressed.

    Raises:
        ValueError: They are given in a form that this reader does not support.
    """
    root = _parse(path)
    if "EXT_RESTART" in root.sections:
        raise ValueError("the structure comes from a restart file (&EXT_RESTART)")
    subsystem = root.find_section("FORCE_EVAL", "SUBSYS")
    cell, pbc = _read_cell(subsystem.find_section("CELL"))
    labels, positions = _read_coordinates(subsystem, path)
    if _is_on(subsystem.find_section("COORD").find_words("SCALED")):
        positions = positions @ cell
    kinds = {
        kind.parameter: kind.find_words("ELEMENT") for kind in subsystem.sections.get("KIND", [])
    }
    elements = {name: words[0] for name, words in kinds.items() if words}
    if positions.shape[1:] != (3,):
        raise ValueError("a line of &COORD is not a label and three numbers")
    symbols = [elements.get(label) or parse_symbol(label) for label in labels]
    return Structure(find_atomic_numbers(symbols), positions, cell, pbc)


def _parse(path: Path) -> _Section:
    """Parse an input into its tree of sections."""
    stack = [_Section()]
    with open_text(path) as file:
        for line in file:
            words = re.split("[!#]", line)[0].split()
            if line.lstrip().startswith("@") or "$" in line:
                raise ValueError(f"it needs CP2K's preprocessor ({line.strip()})")
            if not words:
                continue
            if words[0].upper().startswith("&END"):
                if len(stack) == 1:
                    raise ValueError(f"{line.strip()} does not end an open section")
                stack.pop()
            elif words[0].startswith("&"):
                section = _Section(parameter=" ".join(words[1:]))
                stack[-1].sections.setdefault(words[0][1:].upper(), []).append(section)
                stack.append(section)
            else:
                stack[-1].lines.append(words)
    return stack[0]


def _read_cell(section: _Section) -> tuple[Floats, NDArray[np.bool_]]:
    lengths = _parse_lengths(section.find_words("ABC"))
    if lengths is not None:
        from ase.geometry import cellpar_to_cell

        angles = section.find_words("ALPHA_BETA_GAMMA") or ["90", "90", "90"]
        cell = cellpar_to_cell([*lengths, *_parse_finite(angles[-3:])])
    else:
        vectors = [_parse_lengths(section.find_words(name)) for name in "ABC"]
        if any(vector is None for vector in vectors):
            raise ValueError("it gives the cell neither as ABC nor as A, B and C")
        cell = np.array(vectors)
    periodic = (section.find_words("PERIODIC") or ["XYZ"])[0].upper()
    return cell, np.array([axis in periodic for axis in "XYZ"]) & (periodic != "NONE")


def _parse_lengths(words: list[str] | None) -> Floats | None:
    """Parse three lengths; a unit in brackets may precede them."""
    if words is None:
        return None
    unit = words[0].strip("[]").lower() if words[0].startswith("[") else "angstrom"
    return _parse_finite(words[-3:]) * find_factor("length", unit)


def _parse_finite(words: Sequence[Any]) -> Floats:
    if any("_" in word for word in np.ravel(words)):
        raise ValueError("invalid number with an underscore in the structure")
    numbers = np.array(words, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("a number of the structure is not finite")
    return numbers


def _read_coordinates(subsystem: _Section, path: Path) -> tuple[list[str], Floats]:
    """Read labels and positions of the atoms, from the input or the XYZ file that it names."""
    section = subsystem.find_section("COORD")
    file_name = subsystem.find_section("TOPOLOGY").find_words("COORD_FILE_NAME")
    if not section.lines and file_name:
        block = next(split_blocks(path.with_name(file_name[0])))
        if not isinstance(block, Block):
            raise ValueError(f"{file_name[0]}: {block}")
        return list(block.columns[0]), np.array(block.columns[1:4], dtype=np.float64).T
    atoms = [line for line in section.lines if line[0].upper() not in {"UNIT", "SCALED"}]
    if not atoms:
        raise ValueError("it holds no coordinates")
    unit = (section.find_words("UNIT") or ["angstrom"])[0].strip("[]").lower()
    positions = _parse_finite([line[1:4] for line in atoms])
    return [line[0] for line in atoms], positions * find_factor("length", unit)


def _is_on(words: list[str] | None) -> bool:
    return words is not None and (
        not words or words[0].strip(".").upper() in {"T", "TRUE", "YES", "ON"}
    )


def parse_symbol(label: str) -> str:
    """Return the element at the beginning of a label such as Hf_surface or H1."""
    from ase.data import atomic_numbers as table

    match = _SYMBOL.match(label)
    start = match[0].capitalize() if match else label
    return start if start in table else start[:1]
