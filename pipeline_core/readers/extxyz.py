"""Extended XYZ, read as a stream: one frame at a time, however long the file.

The layout is that of https://github.com/libAtoms/extxyz as ASE writes it: number of atoms, a
comment line of `key=value` pairs in which `Properties` names the columns and `Lattice` gives the
cell row by row, and one line an atom. Comment lines with brackets, escapes or bare words are left
to ASE's parser.

Labels are found under the names that the dataset file declares, and under no others; without any
declaration under energy, forces, stress and magmoms. A file often holds a model's numbers under the
plain names beside the reference under its own, so that a guess would mix the two.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from itertools import chain, dropwhile, islice, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pipeline_core.readers import BadFrame, Floats, Frame, Reader, Units
from pipeline_core.readers.checks import LABELS, find_atomic_numbers, parse_label
from pipeline_core.readers.files import open_text

_PAIR: Final = re.compile(r"""([\w.:-]+)=(?:"([^"\\]*)"|([^\s"'{}\[\]\\=]+))(?:\s+|$)""")
_STRUCTURE: Final = {"species", "Z", "pos", "Lattice", "Properties", "pbc"}
_BOOLEANS: Final = dict.fromkeys(("T", "True", "TRUE", "true", "1"), True) | dict.fromkeys(
    ("F", "False", "FALSE", "false", "0"), False
)
_BRACKETS: Final = str.maketrans("[](){},", " " * 7)


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
        Every frame in order. A damaged one costs itself: reading goes on at the next line that
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
    """Split a file into frames; a damaged frame is yielded as the reason why it cannot be read."""
    with open_text(path) as file:
        back: Iterator[str] = iter(())  # lines to read once more, after damage
        while True:
            lines = chain(back, file)
            count = next((line for line in lines if not line.isspace()), None)
            if count is None:
                return
            if not _is_count(count):
                yield f"expected the number of atoms, found {count.strip()[:60]!r}"
                restart = next((line for line in lines if _is_count(line)), None)
                back = iter([] if restart is None else [restart, *back])
                continue
            n_atoms = int(count)
            comment, *rows = [*islice(lines, n_atoms + 1)] or [""]
            columns = _split_columns(rows, n_atoms)
            if columns is None:
                yield _explain_damage(comment, rows, n_atoms)
                rest = dropwhile(lambda line: not _is_count(line), [comment, *rows])
                back = iter([*rest, *back])
            else:
                yield Block(comment, columns)


def _split_columns(rows: list[str], n_atoms: int) -> Columns | None:
    """Return the columns of a table, or None if it is not whole."""
    if len(rows) < n_atoms:
        return None
    try:
        return tuple(zip(*map(str.split, rows), strict=True))
    except ValueError:
        return None


def _is_count(line: str) -> bool:
    return line.strip().isdecimal()


def _explain_damage(comment: str, rows: list[str], n_atoms: int) -> str:
    """Say why the table of a frame cannot be read."""
    whole = takewhile(lambda line: not _is_count(line), [comment, *rows])
    n_rows = max(0, len(list(whole)) - 1)
    if n_rows < n_atoms:
        return f"truncated: {n_atoms} atoms announced, {n_rows} lines found"
    widths = [len(row.split()) for row in rows]
    odd = next(i for i, width in enumerate(widths) if width != widths[0])
    cut = "truncated: " if odd == n_atoms - 1 and not rows[odd].endswith("\n") else ""
    return f"{cut}line of atom {odd + 1} has {widths[odd]} columns, the first line has {widths[0]}"


def _parse(comment: str) -> dict[str, str]:
    """Return the pairs of a comment line, values as text."""
    pairs, end, comment = {}, 0, comment.strip()
    for match in _PAIR.finditer(comment):
        if match.start() != end:
            break
        key, quoted, bare = match.groups()
        pairs[key], end = (bare if quoted is None else quoted), match.end()
    return pairs if end == len(comment) else _parse_by_ase(comment)


def _parse_by_ase(comment: str) -> dict[str, str]:
    from ase.io.extxyz import key_val_str_to_dict

    try:
        return {key: _restore_text(value) for key, value in key_val_str_to_dict(comment).items()}
    except (ValueError, LookupError) as error:
        raise ValueError(f"comment line cannot be parsed: {error}") from error


def _restore_text(value: Any) -> str:
    """Undo the conversions of ASE's parser, which stores matrices column by column."""
    if isinstance(value, np.ndarray):
        return " ".join(repr(number) for number in value.ravel(order="F").tolist())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@functools.lru_cache(maxsize=64)
def _parse_layout(properties: str) -> Mapping[str, slice]:
    """Return the columns of each property, from a value such as "species:S:1:pos:R:3"."""
    parts = properties.split(":")
    if len(parts) % 3 or not all(width.isdecimal() for width in parts[2::3]):
        raise ValueError(f"Properties={properties} is not a list of name:type:columns")
    stops = np.cumsum([int(width) for width in parts[2::3]]).tolist()
    starts = [0, *stops]
    return {n: slice(a, b) for n, a, b in zip(parts[::3], starts, stops, strict=False)}


def _read_table(block: Block, comment: Mapping[str, str]) -> dict[str, Columns]:
    """Return the columns of each property as text; plain XYZ may have more than are named."""
    if not block.columns:
        raise ValueError("has no atoms")
    declared = comment.get("Properties")
    layout = _parse_layout(declared or "species:S:1:pos:R:3")
    n_named, n_columns = max(columns.stop for columns in layout.values()), len(block.columns)
    if n_columns < n_named or (declared and n_columns > n_named):
        raise ValueError(f"lines have {n_columns} columns, expected {n_named}")
    return {name: block.columns[columns] for name, columns in layout.items()}


def _make_frame(block: Block, keys: Mapping[str, str], index: int) -> Frame:
    comment = _parse(block.comment)
    table = _read_table(block, comment)
    if not ("species" in table or "Z" in table) or "pos" not in table:
        raise ValueError("Properties lacks species (or Z) or pos")
    used = _STRUCTURE.union(keys.values())
    fields: dict[str, str | Columns] = {**comment, **table}
    return Frame(
        atomic_numbers=np.array(table["Z"][0], np.int32)
        if "Z" in table
        else find_atomic_numbers(table["species"][0]),
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


def _parse_cell(comment: Mapping[str, str]) -> Floats:
    if "Lattice" not in comment:
        return np.zeros((3, 3))
    numbers = comment["Lattice"].split()
    if len(numbers) != 9:
        raise ValueError(f"Lattice has {len(numbers)} numbers, expected 9")
    return np.array(numbers, np.float64).reshape(3, 3)


def _parse_pbc(comment: Mapping[str, str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if "pbc" not in comment:
        return np.full(3, "Lattice" in comment)
    flags = comment["pbc"].translate(_BRACKETS).split()
    if len(flags) != 3 or not all(flag in _BOOLEANS for flag in flags):
        raise ValueError(f"pbc={comment['pbc']!r} is not three of T and F")
    return np.array([_BOOLEANS[flag] for flag in flags])


def _parse_array(value: str | Columns) -> Floats | None:
    """Return text as numbers, (), (n,), (n_atoms,) or (n_atoms, n_columns), or None."""
    try:
        return _parse_numbers(value)
    except ValueError:
        return None


def _parse_numbers(value: str | Columns) -> Floats:
    if isinstance(value, str):
        numbers = np.array(value.removeprefix("_JSON").translate(_BRACKETS).split(), np.float64)
        return numbers.reshape(()) if numbers.size == 1 else numbers
    return np.array(value[0] if len(value) == 1 else value, np.float64).T


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
