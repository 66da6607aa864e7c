"""CP2K inputs with exchanged structures, and the number of cores from CP2K outputs."""

import math
import re
from typing import Final

from ase import Atoms

_PROCESSES: Final = "Total number of message passing processes"
_THREADS: Final = "Number of threads for this process"


def fill_input(template: str, atoms: Atoms) -> str:
    """Fill the cell and the atoms of a structure into a CP2K input, in place of its own.

    Args:
        template: An input of one &FORCE_EVAL, with &CELL and &COORD.
        atoms: Structure, periodic in three directions.

    Raises:
        ValueError: A section is missing or there are several, the structure has an element without
            &KIND, or it is not periodic.
    """
    if not atoms.pbc.all():
        raise ValueError("learn.label_with.cp2k: the structure has to be periodic in 3 directions")
    kinds = {kind.capitalize() for kind in re.findall(r"(?im)^\s*&KIND\s+(\w+)", template)}
    missing = sorted({*atoms.symbols} - kinds)
    if missing:
        raise ValueError(
            f"learn.label_with.cp2k: the input has no &KIND {missing[0]}; add basis and potential"
        )
    cell = [f"{name} {_format(v)}" for name, v in zip("ABC", atoms.cell[:], strict=True)]
    coordinates = [
        f"{symbol} {_format(position)}"
        for symbol, position in zip(atoms.symbols, atoms.positions, strict=True)
    ]
    text = _replace(template, "CELL", [*cell, "PERIODIC XYZ"])
    return _replace(text, "COORD", coordinates)


def count_cores(output: str) -> int | None:
    """Return the cores that CP2K reports for all its processes together; None if it does not."""
    counts = [re.search(rf"{words} +(\d+)", output) for words in (_PROCESSES, _THREADS)]
    return math.prod(int(one[1]) for one in counts if one) if all(counts) else None


def _replace(text: str, name: str, lines: list[str]) -> str:
    """Replace the content of the only section of a name."""
    pattern = re.compile(rf"(?ims)^([ \t]*)&{name}[ \t]*$.*?^[ \t]*&END[ \t]+{name}[ \t]*$")
    found = list(pattern.finditer(text))
    if len(found) != 1:
        raise ValueError(
            f"learn.label_with.cp2k: the input has {len(found)} sections &{name}, and one is needed"
        )
    match = found[0]
    inner = "".join(f"{match[1]}  {line}\n" for line in lines)
    section = f"{match[1]}&{name}\n{inner}{match[1]}&END {name}"
    return text[: match.start()] + section + text[match.end() :]


def _format(vector: object) -> str:
    return " ".join(f"{float(x):.10f}" for x in vector)  # type: ignore[attr-defined]
