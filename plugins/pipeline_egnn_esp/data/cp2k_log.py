"""Reader of CP2K's output of a run that has written its matrices."""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from ase.data import chemical_symbols

from pipeline_atoms.readers.cp2k_input import parse_symbol
from pipeline_atoms.readers.cp2k_output import Evaluation, Output
from pipeline_atoms.structure import Structure
from pipeline_core.data.files import open_text
from pipeline_egnn_esp.data.basis import LETTERS, count_orbitals

Image = tuple[int, int, int]

_KIND: Final = re.compile(r"^ +\d+\. Atomic kind: (\S+) .*Number of atoms:", re.MULTILINE)
_SHELL: Final = re.compile(rf"^ +(\d+) +(\d+) +\d+([{LETTERS}])\S* +-?\d", re.MULTILINE)
_ROUNDING: Final = 2e-3
"""Å: the output prints the cell with three decimals."""


@dataclass(frozen=True)
class Log:
    """Content of an output of CP2K.

    Attributes:
        project: Prefix of the files of the run.
        input_name: Name of the input.
        images: Image of each file, by kind of matrix, "KS" or "S"; empty for Gamma points.
        shells: Degree of each shell by element; empty if the output does not print them.
        start: Atoms and cell of the first step, where they are printed.
        n_atoms: Number of atoms.
        n_shells: Number of shells of all atoms.
        n_orbitals: Number of orbitals of all atoms.
    """

    project: str
    input_name: str
    images: Mapping[str, list[Image]]
    shells: Mapping[str, tuple[int, ...]]
    start: Evaluation
    n_atoms: int
    n_shells: int
    n_orbitals: int

    def require_fits(self, shells: Mapping[str, tuple[int, ...]], symbols: list[str]) -> None:
        """Check a basis and the atoms of a structure against the output.

        Raises:
            ValueError: Number or order of the atoms, shells or orbitals differ.
        """
        if len(symbols) != self.n_atoms:
            raise ValueError(
                f"the structure has {len(symbols)} atoms, the output {self.n_atoms}; name the "
                "input, or restart file, of this run"
            )
        numbers = self.start.atomic_numbers
        elements = [] if numbers is None else [chemical_symbols[z] for z in numbers]
        for i, (ours, theirs) in enumerate(zip(symbols, elements, strict=False)):
            if ours != theirs:
                raise ValueError(
                    f"atom {i} is {ours} in the structure and {theirs} in the output: the "
                    "matrices have the order of the output; name the input of this run"
                )
        for symbol in dict.fromkeys(symbols):
            if symbol not in shells:
                raise ValueError(
                    f"the shells of {symbol} are unknown; print them (PRINT_LEVEL MEDIUM), or give "
                    f"the degree of each under `basis`, such as {symbol}: [0, 0, 1]"
                )
        counts = (
            sum(len(shells[symbol]) for symbol in symbols),
            sum(count_orbitals(shells[symbol]) for symbol in symbols),
        )
        if counts != (self.n_shells, self.n_orbitals):
            raise ValueError(
                f"the basis gives {counts[0]} shells and {counts[1]} orbitals, the output has "
                f"{self.n_shells} and {self.n_orbitals}; correct `basis`: the degree of each "
                "shell of an element, as in {O: [0, 1]}"
            )

    def require_input(self, structure: Structure) -> None:
        """Check a structure that was read from the input against the output.

        Raises:
            ValueError: An atom or a vector of the cell differs.
        """
        vectors = np.array(list(self.start.cell.values()))
        for name, theirs in (("cell", vectors), ("positions", self.start.positions)):
            ours = getattr(structure, name)
            if theirs is None or theirs.shape != ours.shape:
                continue
            if np.abs(theirs - ours).max() > _ROUNDING:
                raise ValueError(
                    f"the {name} of the input and of the output differ by up to "
                    f"{np.abs(theirs - ours).max():.3g} Å; they are of different runs, or the "
                    "output moves the atoms: name a restart file by `structure` of the source"
                )


def read_log(path: Path) -> Log:
    """Read an output, plain or compressed.

    Raises:
        ValueError: The output is not complete, or the run did not converge.
    """
    try:
        with open_text(path) as file:
            text = file.read()
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); write it again") from error
    # CP2K appends to an output that exists.
    text = text[max(0, text.rfind("PROGRAM STARTED AT")) :]
    if "PROGRAM ENDED AT" not in text:
        raise ValueError(
            f"{path}: is not a complete output of CP2K: the line PROGRAM ENDED is missing; let "
            "the run end"
        )
    if "SCF run NOT converged" in text:
        raise ValueError(
            f"{path}: the self-consistency loop did not converge; raise MAX_SCF and run it again"
        )
    start = next(Output(io.StringIO(text)).read_evaluations(), Evaluation())
    if start.problem:
        raise ValueError(f"{path}: {start.problem}; write it again")
    return Log(
        project=_find_text(path, text, r"GLOBAL\| Project name +(\S+)"),
        input_name=_find_text(path, text, r"CP2K\| Input file name +(\S+)"),
        images={kind: images for kind in ("KS", "S") if (images := _read_images(path, text, kind))},
        shells=_read_shells(path, text),
        start=start,
        n_atoms=int(_find_text(path, text, r"^ +- Atoms: +(\d+)")),
        n_shells=int(_find_text(path, text, r"^ +- Shells: +(\d+)")),
        n_orbitals=int(_find_text(path, text, r"^ +- Spherical basis functions: +(\d+)")),
    )


def _find_text(path: Path, text: str, pattern: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ValueError(f"{path}: is not an output of CP2K's Quickstep: it lacks {pattern!r}")
    return match[1]


def _read_images(path: Path, text: str, kind: str) -> list[Image]:
    """Return the image of each file of the last step, in the order of their numbers."""
    pattern = rf"^ +{kind} CSR write\| +(\d+) periodic images\n.*\n"
    heads = list(re.finditer(pattern, text, re.MULTILINE))
    if not heads:
        return []
    head = heads[-1]
    rows = [line.split() for line in text[head.end() :].split("\n")[: int(head[1])]]
    if any(len(row) != 4 for row in rows):
        raise ValueError(f"{path}: the list of images of {kind} is not complete; write it again")
    return [(int(x), int(y), int(z)) for _, x, y, z in rows]


def _read_shells(path: Path, text: str) -> dict[str, tuple[int, ...]]:
    """Return the shells by element, from the tables of the atomic kinds."""
    begin = text.find("ATOMIC KIND INFORMATION")
    if begin < 0:
        return {}
    shells_of: dict[str, tuple[int, ...]] = {}
    kinds = list(_KIND.finditer(text, begin))
    for number, kind in enumerate(kinds):
        end = kinds[number + 1].start() if number + 1 < len(kinds) else len(text)
        rows = {(m[1], m[2]): m[3] for m in _SHELL.finditer(text, kind.end(), end)}
        shells = tuple(LETTERS.index(letter) for letter in rows.values())
        symbol = parse_symbol(kind[1])
        if shells_of.setdefault(symbol, shells) != shells:
            raise ValueError(
                f"{path}: has two basis sets for {symbol}: shells {list(shells_of[symbol])} and "
                f"{list(shells)}; give all atoms of an element one basis set"
            )
    return shells_of
