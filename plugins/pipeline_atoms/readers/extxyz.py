"""Extended XYZ, read as a stream: one frame at a time, for files of any length.

The layout is that of https://github.com/libAtoms/extxyz as ASE writes it: number of atoms, a
comment line of `key=value` pairs in which `Properties` names the columns and `Lattice` gives the
cell row by row, and one line per atom. ASE's parser reads comment lines with brackets, escapes or
bare words.

Labels are found under the names that the dataset file declares, and under no others; without any
declaration under energy, forces, stress and magmoms. A file often holds predictions of a model
under the plain names beside reference labels under other names, so that a guess would mix the two.
"""

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.readers import BadFrame, Floats, Frame, Reader, Units
from pipeline_atoms.readers.frame_checks import LABELS, find_atomic_numbers, parse_label
from pipeline_core.data.files import explain_cut, open_text

_PAIR: Final = re.compile(r"""([\w.:-]+)=(?:"([^"\\]*)"|([^\s"'{}\[\]\\=]+))(?:\s+|$)""")
_STRUCTURE: Final = {"species", "Z", "pos", "Lattice", "Properties", "pbc"}
_BOOLEANS: Final = dict.fromkeys(("T", "True", "TRUE", "true", "1"), True) | dict.fromkeys(
    ("F", "False", "FALSE", "false", "0"), False
)
_BRACKETS: Final = str.maketrans("[](){},", " " * 7)
_HEAVIEST: Final = 118
_LONGEST: Final = 1 << 24
_LONGEST_COUNT: Final = 12
_SHAPES: Final = {
    "Lattice": re.compile(r"\s*(\S+\s+){8}\S+\s*"),
    "Properties": re.compile(r"\w+:[A-Z]:\d+(:\w+:[A-Z]:\d+)*"),
    "pbc": re.compile(r"\W*([TF]\w*\W+){2}[TF]\w*\W*"),
}
"""Patterns of the values of structure keys."""


Columns = tuple[tuple[str, ...], ...]


class Block(NamedTuple):
    """One frame as text: its comment line and the columns of its table."""

    comment: str
    columns: Columns


def read(path: Path, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read a file, plain or compressed.

    Args:
        path: The file.
        keys: Field names to the names of the labels in the file.

    Yields:
        Every frame in order. A damaged one is bad, and reading continues at the next line that
        counts atoms.
    """
    names = keys or {name: name for name in LABELS}
    for index, block in enumerate(split_blocks(path)):
        try:
            yield (
                BadFrame(index, block)
                if isinstance(block, str)
                else _make_frame(block, names, index)
            )
        except ValueError as error:
            yield BadFrame(index, str(error))


def iterate_values(path: Path) -> Iterator[Mapping[str, Floats]]:
    """Yield, for each good frame, its numeric values besides the structure, by their names."""
    for block in split_blocks(path):
        try:
            if isinstance(block, Block):
                yield _collect_values(block)
        except ValueError:
            continue


def _collect_values(block: Block) -> dict[str, Floats]:
    comment = _parse(block.comment)
    fields = comment | _read_table(block, comment)
    arrays = {key: _parse_array(value) for key, value in fields.items() if key not in _STRUCTURE}
    return {key: array for key, array in arrays.items() if array is not None}


def split_blocks(path: Path) -> Iterator[Block | str]:
    """Split a file into frames; a damaged frame is replaced by the reason of its damage."""
    with open_text(path) as file:
        lines = _Lines(file)
        while count := lines.read_filled():
            yield _read_block(count, lines)


class _Lines:
    """The lines of a file with their numbers; the last ones can be put back."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._back = file, list[str]()
        self.number = 0  # number of the last line read

    def read(self) -> str:
        """Return the next line, "" at the end.

        Raises:
            ValueError: It is longer than any line of numbers.
        """
        self.number += 1
        if self._back:
            return self._back.pop()
        line = self._file.readline(_LONGEST)
        if len(line) == _LONGEST:
            raise ValueError(f"line {self.number} has over {_LONGEST} characters: not a text file")
        return line

    def read_filled(self) -> str:
        """Return the next line that is not blank, "" at the end."""
        while (line := self.read()) and line.isspace():
            pass
        return line

    def put_back(self, lines: Sequence[str]) -> None:
        """Put lines back to be read again."""
        self._back += reversed(lines)
        self.number -= len(lines)

    def skip_to_count(self) -> None:
        """Skip all lines before the next one that counts atoms."""
        while (line := self.read()) and not _is_count(line):
            pass
        self.put_back([line])


def _read_block(count: str, lines: _Lines) -> Block | str:
    """Read a frame with the first line `count`, and all lines until the next frame."""
    begin = lines.number
    if not _is_count(count):
        lines.skip_to_count()
        return f"line {begin}: expected the number of atoms, found {count.strip()[:60]!r}"
    n_atoms, comment = int(count), lines.read()
    rows = _read_rows(lines, n_atoms)
    columns = _split_columns(rows)
    if (columns is None or len(rows) < n_atoms) and _is_count(
        comment
    ):  # a frame truncated after its count
        lines.put_back([comment, *rows])
        comment, rows = "", []
    if not comment or len(rows) < n_atoms:
        return f"truncated: {n_atoms} atoms announced in line {begin}, {len(rows)} lines found"
    if columns is None:
        lines.skip_to_count()
        return _explain_widths(rows, begin)
    return (
        _find_leftover(lines, begin, n_atoms)
        or _find_cut(columns, rows)
        or (Block(comment, columns))
    )


def _read_rows(lines: _Lines, n_atoms: int) -> list[str]:
    """Read one line per atom; fewer if the file ends, or a line counts the atoms of a frame."""
    rows: list[str] = []
    while len(rows) < n_atoms and (line := lines.read()):
        if len(line) <= _LONGEST_COUNT and _is_count(line):
            lines.put_back([line])
            break
        rows.append(line)
    return rows


def _is_count(line: str) -> bool:
    word = line.strip()
    return word.isdecimal() and word.isascii() and len(word) < _LONGEST_COUNT


def _split_columns(rows: list[str]) -> Columns | None:
    """Split a table into columns; None if lines differ in their number."""
    try:
        return tuple(zip(*map(str.split, rows), strict=True))
    except ValueError:
        return None


def _explain_widths(rows: list[str], begin: int) -> str:
    """Return an error message for the first line of a table with another number of columns."""
    widths = [len(row.split()) for row in rows]
    odd = next(i for i, width in enumerate(widths) if width != widths[0])
    cut = "truncated: " if odd == len(rows) - 1 and not rows[odd].endswith("\n") else ""
    return (
        f"{cut}line of atom {odd + 1} has {widths[odd]} columns, the first line has {widths[0]} "
        f"(line {begin + 2 + odd})"
    )


def _find_leftover(lines: _Lines, begin: int, n_atoms: int) -> str | None:
    """Return an error message if a table is longer than announced, and skip the rest of it."""
    line = lines.read_filled()
    if not line or _is_count(line) or "=" in line:  # with "=" it is a comment without its count
        lines.put_back([line])
        return None
    number = lines.number
    lines.skip_to_count()
    return (
        f"{n_atoms} atoms announced in line {begin}, but line {number} does not begin another "
        f"frame: {line.strip()[:60]!r}; the count is wrong, or lines are damaged"
    )


def _find_cut(columns: Columns, rows: list[str]) -> str | None:
    """Return an error message if the file may end within its last number."""
    if not rows or rows[-1].endswith("\n"):
        return None
    return explain_cut(columns[-1][-1], [*columns[-1][:-1], *(c[-1] for c in columns[-3:-1])])


def _parse(comment: str) -> dict[str, str]:
    """Parse a comment line into pairs, values as text."""
    pairs: dict[str, str] = {}
    end, comment = 0, comment.strip()
    for match in _PAIR.finditer(comment):
        if match.start() != end:
            break
        key, quoted, bare = match.groups()
        value = bare if quoted is None else quoted
        if pairs.setdefault(key, value) != value:
            raise ValueError(f"the comment line gives {key} twice: {pairs[key]!r} and {value!r}")
        end = match.end()
    return pairs if end == len(comment) else _parse_by_ase(comment)


def _parse_by_ase(comment: str) -> dict[str, str]:
    from ase.io.extxyz import key_val_str_to_dict

    try:
        return {key: _restore_text(value) for key, value in key_val_str_to_dict(comment).items()}
    except (ValueError, LookupError) as error:
        raise ValueError(f"comment line cannot be parsed: {error}") from error


def _restore_text(value: Any) -> str:
    """Convert a value of ASE's parser back to text; it stores matrices column by column."""
    if isinstance(value, np.ndarray):
        return " ".join(repr(number) for number in value.ravel(order="F").tolist())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@functools.lru_cache(maxsize=64)
def _parse_layout(properties: str) -> Mapping[str, slice]:
    """Parse a value such as "species:S:1:pos:R:3" into the columns of each property."""
    parts = properties.split(":")
    if len(parts) % 3 or not all(width.isdecimal() for width in parts[2::3]):
        raise ValueError(f"Properties={properties} is not a list of name:type:columns")
    names = parts[::3]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"Properties={properties} names {twice} twice; rename one")
    stops = np.cumsum([int(width) for width in parts[2::3]]).tolist()
    starts = [0, *stops]
    return {n: slice(a, b) for n, a, b in zip(names, starts, stops, strict=False)}


def _read_table(block: Block, comment: Mapping[str, str]) -> dict[str, Columns]:
    """Return the columns of each property as text; plain XYZ may have further columns."""
    if not block.columns:
        raise ValueError("has no atoms")
    declared = comment.get("Properties")
    layout = _parse_layout(declared or "species:S:1:pos:R:3")
    n_named, n_columns = max(columns.stop for columns in layout.values()), len(block.columns)
    if n_columns < n_named or (declared and n_columns > n_named):
        raise ValueError(f"lines have {n_columns} columns, expected {n_named}")
    return {name: block.columns[columns] for name, columns in layout.items()}


def _require_spelled(comment: Mapping[str, str]) -> None:
    """Refuse a comment line with a misspelled key of the structure."""
    for key, shape in _SHAPES.items():
        for near in (
            difflib.get_close_matches(key, comment, cutoff=0.6) if key not in comment else ()
        ):
            if shape.fullmatch(comment[near]):
                raise ValueError(f"the comment line has {near}, did you mean {key}?")


def _make_frame(block: Block, keys: Mapping[str, str], index: int) -> Frame:
    comment = _parse(block.comment)
    _require_spelled(comment)
    table = _read_table(block, comment)
    if not ("species" in table or "Z" in table) or "pos" not in table:
        raise ValueError("Properties lacks species (or Z) or pos")
    used = _STRUCTURE.union(keys.values())
    fields: dict[str, str | Columns] = {**comment, **table}
    return Frame(
        atomic_numbers=_find_numbers(table),
        positions=_parse_numbers(table["pos"]),
        cell=_parse_cell(comment),
        pbc=_parse_pbc(comment),
        labels={
            name: parse_label(name, _parse_array(fields[key]))
            for name, key in keys.items()
            if key in fields
        },
        info={key: _parse_scalar(text) for key, text in comment.items() if key not in used},
        index=index,
    )


def _find_numbers(table: Mapping[str, Columns]) -> NDArray[np.int32]:
    """Return Z from the column species or Z; if a file has both, they must agree."""
    given: list[NDArray[Any]] = [np.array(table["Z"][0], np.float64)] if "Z" in table else []
    given += [find_atomic_numbers(table["species"][0])] if "species" in table else []
    if (given[0] != given[-1]).any() or (given[0] != np.rint(given[0])).any():
        raise ValueError("the columns species and Z do not agree, or Z is not a whole number")
    if abs(given[0]).max() > _HEAVIEST:
        raise ValueError("Z is not an element")
    return given[0].astype(np.int32)


def _parse_cell(comment: Mapping[str, str]) -> Floats:
    if "Lattice" not in comment:
        return np.zeros((3, 3))
    numbers = comment["Lattice"].split()
    if len(numbers) != 9:
        raise ValueError(f"Lattice has {len(numbers)} numbers, expected 9")
    _require_digits(numbers)
    return np.array(numbers, np.float64).reshape(3, 3)


def _parse_pbc(comment: Mapping[str, str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if "pbc" not in comment:
        return np.full(3, "Lattice" in comment)
    flags = comment["pbc"].translate(_BRACKETS).split()
    if len(flags) != 3 or not all(flag in _BOOLEANS for flag in flags):
        raise ValueError(f"pbc={comment['pbc']!r} is not three of T and F")
    return np.array([_BOOLEANS[flag] for flag in flags])


def _parse_array(value: str | Columns) -> Floats | None:
    """Convert text to numbers, (), (n,), (n_atoms,) or (n_atoms, n_columns), or None."""
    try:
        return _parse_numbers(value)
    except ValueError:
        return None


def _parse_numbers(value: str | Columns) -> Floats:
    if isinstance(value, str):
        words = value.removeprefix("_JSON").translate(_BRACKETS).split()
        _require_digits(words)
        numbers = np.array(words, np.float64)
        return numbers.reshape(()) if numbers.size == 1 else numbers
    for column in value:
        _require_digits(column)
    return np.array(value[0] if len(value) == 1 else value, np.float64).T


def _require_digits(words: Iterable[str]) -> None:
    """Refuse number formats of Python that no physics program writes."""
    text = "".join(words)
    if "_" in text or not text.isascii():
        raise ValueError("a number has an underscore, or digits of another script")


def _parse_scalar(text: str) -> str | int | float | bool:
    if text in _BOOLEANS and text not in "01":
        return _BOOLEANS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


READER: Final = Reader(
    name="extxyz",
    summary="Extended XYZ, plain or compressed; labels of chosen names.",
    suffixes=(".extxyz", ".xyz", ".extxyz.gz", ".xyz.gz"),
    units=Units(),
    read=read,
    keys=True,
    values=iterate_values,
)
