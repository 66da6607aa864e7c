"""The structure in a CP2K input: cell and coordinates, with all their digits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_core.readers import Floats
from pipeline_core.readers.checks import atomic_numbers
from pipeline_core.readers.extxyz import Block, blocks
from pipeline_core.readers.files import compressed_or_not, opened_text
from pipeline_core.units import factor


@dataclass
class Section:
    """A section: its keywords in order, as words, and its subsections by name."""

    parameter: str = ""
    lines: list[list[str]] = field(default_factory=list)
    sections: dict[str, list[Section]] = field(default_factory=dict)

    def first(self, *names: str) -> Section:
        """Return the first subsection along a path of names, empty if there is none."""
        section = self
        for name in names:
            section = section.sections.get(name, [Section()])[0]
        return section

    def words(self, keyword: str) -> list[str]:
        """Return what follows a keyword, empty if it is not given."""
        return next((line[1:] for line in self.lines if line[0].upper() == keyword), [])


@dataclass(frozen=True)
class Structure:
    """Atoms and cell of an input, in Å."""

    atomic_numbers: NDArray[np.int32]
    positions: Floats
    cell: Floats
    pbc: NDArray[np.bool_]


def parse(path: Path) -> Section:
    """Read an input file into its sections.

    Raises:
        ValueError: It is written with directives or variables of the preprocessor.
    """
    stack = [Section()]
    with opened_text(path) as file:
        for line in file:
            words = line.partition("!")[0].partition("#")[0].split()
            if not words:
                continue
            if words[0].startswith("@") or "$" in line:
                raise ValueError(f"{path.name}: preprocessor directives are not supported ({line.strip()})")
            name = words[0][1:].upper()
            if words[0].upper().startswith("&END"):
                stack.pop()
            elif words[0].startswith("&"):
                section = Section(parameter=" ".join(words[1:]))
                stack[-1].sections.setdefault(name, []).append(section)
                stack.append(section)
            else:
                stack[-1].lines.append(words)
    return stack[0]


def structure(path: Path) -> Structure:
    """Read cell and coordinates of an input.

    Raises:
        ValueError: They are given in a way that is not supported.
    """
    subsystem = parse(path).first("FORCE_EVAL", "SUBSYS")
    cell, pbc = _cell(subsystem.first("CELL"))
    labels, positions = _coordinates(subsystem, path)
    if subsystem.first("COORD").words("SCALED") == ["T"] or [["SCALED"]] == [
        line for line in subsystem.first("COORD").lines if line[0].upper() == "SCALED"
    ]:
        positions = positions @ cell
    elements = {
        kind.parameter: kind.words("ELEMENT")[0]
        for kind in subsystem.sections.get("KIND", [])
        if kind.words("ELEMENT")
    }
    return Structure(_numbers(labels, elements), positions, cell, pbc)
