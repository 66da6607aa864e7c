"""MPtrj, the trajectories of the Materials Project's relaxations, in the layout of its authors.

The file (https://figshare.com/articles/dataset/23713842, 12 GB) is one JSON object, material to
frame to record; a record has a pymatgen structure, energies (eV), forces (eV/Å), the stress as in
VASP (kbar, positive if the cell tends to expand) and the signed moments of the sites (µB) or null.
It is read one material at a time.

The energy is `corrected_total_energy` unless the dataset file names another, such as
`uncorrected_total_energy`: the set mixes GGA and GGA+U, which are comparable only with MP2020
corrections (CHGNet, Deng et al. 2023, https://doi.org/10.1038/s42256-023-00716-3, is trained on
corrected energies).
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from pipeline_atoms.readers import BadFrame, Floats, Frame, Reader, Units
from pipeline_atoms.readers.frame_checks import (
    find_atomic_numbers,
    make_object,
    parse_label,
    parse_numbers,
    require_numbers,
    select_plain,
)
from pipeline_core.data.files import open_text

_NAMES: Final = {
    "energy": "corrected_total_energy",
    "forces": "force",
    "stress": "stress",
    "magmoms": "magmom",
}
_CHUNK: Final = 1 << 22
_SLACK: Final = 1 << 16  # an error this close to the end of the buffer may be due to the end alone
_SPACE: Final = re.compile(r"\s*")


def read(path: Path, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read a file, plain or compressed.

    Args:
        path: The file.
        keys: Field names to keys of a record, in place of the usual ones.

    Yields:
        Every frame in order.
    """
    names = {**_NAMES, **keys}
    index = 0
    try:
        for mp_id, frame_id, record in _iterate_records(path):
            yield _attempt(mp_id, frame_id, record, names, index)
            index += 1
    except (EOFError, ValueError) as error:
        reason = str(error) or "truncated: the file ends within a material"
        yield BadFrame(index, f"{reason}; what follows is lost")


def _attempt(
    mp_id: str, frame_id: str, record: Any, names: Mapping[str, str], index: int
) -> Frame | BadFrame:
    try:
        return _make_frame(mp_id, frame_id, record, names, index)
    except (ValueError, LookupError, TypeError) as error:
        reason = (
            str(error) if isinstance(error, ValueError) else f"not a record of MPtrj ({error!r})"
        )
        return BadFrame(index, f"{mp_id}, {frame_id}: {reason}")


def iterate_values(path: Path) -> Iterator[Mapping[str, Floats]]:
    """Yield, for each frame, its numeric values besides the structure, by their names."""
    for _, _, record in _iterate_records(path):
        if not isinstance(record, dict):
            continue
        arrays = {key: parse_numbers(value) for key, value in record.items()}
        yield {key: array for key, array in arrays.items() if array is not None}


def _iterate_records(path: Path) -> Iterator[tuple[str, str, Any]]:
    with open_text(path) as file:
        for mp_id, frames in _iterate_members(file):
            if not isinstance(frames, dict):
                raise ValueError(f"{mp_id!r} holds no frames: not the layout of MPtrj")
            for frame_id, record in frames.items():
                yield mp_id, frame_id, record


def _iterate_members(file: TextIO) -> Iterator[tuple[str, Any]]:
    """Yield the members of the JSON object that a file holds, decoding one member at a time.

    Raises:
        ValueError: The text is not JSON, or ends before the object does.
    """
    scanner = _Scanner(file)
    scanner.expect("{")
    separator = "" if scanner.peek() == "}" else ","
    while separator == ",":
        key = scanner.read_value()
        scanner.expect(":")
        yield key, scanner.read_value()
        separator = scanner.expect(",}")


class _Scanner:
    """Scanner of JSON values and punctuation of a file; it buffers little more than one value."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._decoder = json.JSONDecoder(object_pairs_hook=make_object)
        self._text = ""
        self._at = 0

    def peek(self) -> str:
        """Return the next character that is not white space, without consuming it."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._grow():
                raise EOFError

    def expect(self, characters: str) -> str:
        """Consume the next character, which must be one of `characters`."""
        character = self.peek()
        if character not in characters:
            near = self._text[self._at : self._at + 40]
            raise ValueError(f"damaged JSON: expected one of {characters!r}, found {near!r}")
        self._at += 1
        return character

    def read_value(self) -> Any:
        """Consume and return the next value."""
        self.peek()
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._text, self._at)
                return value
            except RecursionError as error:
                raise ValueError("damaged JSON: nested too deeply") from error
            except json.JSONDecodeError as error:
                if error.pos < len(self._text) - _SLACK:
                    raise ValueError(f"damaged JSON: {error.msg}") from error
                if not self._grow():
                    raise EOFError from error

    def _grow(self) -> bool:
        """Double the buffer, so that all attempts together cost no more than two."""
        rest = self._text[self._at :]
        more = self._file.read(max(_CHUNK, len(rest)))
        self._text, self._at = rest + more, 0
        return bool(more)


def _make_frame(
    mp_id: str, frame_id: str, record: Any, names: Mapping[str, str], index: int
) -> Frame:
    if not isinstance(record, dict):
        raise ValueError("is not a mapping")
    lattice, sites = record["structure"]["lattice"], record["structure"]["sites"]
    cell = require_numbers("lattice.matrix", lattice["matrix"])
    labels = {name: record[key] for name, key in names.items() if record.get(key) is not None}
    pbc = lattice.get("pbc", [True, True, True])
    if not isinstance(pbc, list) or not all(isinstance(one, bool) for one in pbc):
        raise ValueError("lattice.pbc is not three times true or false")
    return Frame(
        atomic_numbers=find_atomic_numbers([_read_element(site) for site in sites]),
        positions=require_numbers("abc of the sites", [site["abc"] for site in sites]) @ cell,
        cell=cell,
        pbc=np.array(pbc, dtype=bool),
        labels={name: parse_label(name, value) for name, value in labels.items()},
        info=select_plain({k: v for k, v in record.items() if k not in names.values()})
        | {"mp_id": mp_id, "frame_id": frame_id},
        index=index,
    )


def _read_element(site: Mapping[str, Any]) -> str:
    match site["species"]:
        case [{"element": str(symbol), **more}] if more.get("occu", 1) == 1:
            return symbol
        case [{"element": _}, *_]:
            raise ValueError("a site is partially occupied")
        case other:
            raise ValueError(f"species of a site is {str(other)[:40]}, not a list of elements")


READER: Final = Reader(
    name="mptrj",
    summary="The JSON file of MPtrj; the energy may be chosen among those of a record.",
    suffixes=("MPtrj_2022.9_full.json",),
    units=Units(stress="kbar", stress_sign="pressure"),
    read=read,
    keys=True,
    values=iterate_values,
)
