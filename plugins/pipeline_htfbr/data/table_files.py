"""Files of columns or arrays: CSV with a header row, HDF5, NPZ."""

import csv
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_core.data.files import explain_cut
from pipeline_core.data.hdf5 import DAMAGE, open_hdf5, read_dataset
from pipeline_core.suggestions import suggest

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """The columns or arrays of one file.

    Attributes:
        name: Name of the file, for messages.
        arrays: Arrays by name, rows first; from CSV they hold text.
        lines: Line number of each row of a CSV file; empty for other formats.
    """

    name: str
    arrays: Mapping[str, NDArray[Any]]
    lines: Sequence[int] = ()

    def read_numbers(self, key: str, option: str) -> Floats:
        """Return a column or array as numbers.

        Args:
            key: Name of the column or array.
            option: Key of the dataset file that names it, for messages.

        Raises:
            ValueError: It does not exist, or does not hold real numbers.
        """
        column = self._find(key, option)
        if column.dtype.kind in "fiu":
            return column.astype(np.float64)
        if column.dtype.kind not in "OUS":
            raise ValueError(f"{self.name}: {key!r} holds {column.dtype}, expected real numbers")
        try:
            return np.array([_parse_number(text) for text in column.ravel()]).reshape(column.shape)
        except (TypeError, ValueError):
            raise ValueError(self._describe_no_number(key, column)) from None

    def read_names(self, key: str, option: str) -> NDArray[np.object_]:
        """Return a column or array as names, (n,).

        Raises:
            ValueError: It does not exist, or is not one-dimensional.
        """
        column = self._find(key, option)
        if column.ndim != 1:
            raise ValueError(
                f"{self.name}: {key!r} has the shape {column.shape}, expected one name per point"
            )
        decoded = (v.decode() if isinstance(v, bytes) else str(v) for v in column.tolist())
        return np.array(list(decoded), dtype=object)

    def place(self, row: int) -> str:
        """Return the file and the line or row number of a row, for messages."""
        return f"{self.name}, " + (f"line {self.lines[row]}" if self.lines else f"row {row}")

    def _find(self, key: str, option: str) -> NDArray[Any]:
        if key not in self.arrays:
            existing = ", ".join(self.arrays) or "nothing"
            raise ValueError(
                f"{self.name}: {option} {key!r} is not in the file, which holds {existing}"
                f"{suggest(key, self.arrays)}"
            )
        return self.arrays[key]

    def _describe_no_number(self, key: str, column: NDArray[Any]) -> str:
        row = next(i for i, value in enumerate(column.ravel()) if not _is_number(value))
        return (
            f"{self.place(row)}: {key!r} is {column.ravel()[row]!r}, expected a number; correct or "
            "remove it"
        )


def read_table(name: str, path: Path) -> Table:
    """Read a file by its extension.

    Args:
        name: Name of the file in messages.
        path: The file.

    Raises:
        ValueError: The extension is unknown, or the file is damaged.
    """
    if path.suffix not in _READERS:
        raise ValueError(
            f"{name}: unknown extension {path.suffix!r}; choose from {', '.join(_READERS)}"
        )
    try:
        return _READERS[path.suffix](name, path)
    except (*DAMAGE, EOFError, UnicodeDecodeError, BadZipFile, zlib.error, csv.Error) as error:
        raise ValueError(f"{name}: cannot be read ({error}); write the file again") from error


def _read_csv(name: str, path: Path) -> Table:
    # Spreadsheets begin their files with a byte order mark.
    content = path.read_text(encoding="utf-8-sig")
    reader = csv.reader(io.StringIO(content, newline=""), skipinitialspace=True, strict=True)
    header = [column.strip() for column in next(reader, [])]
    if not header:
        raise ValueError(f"{name}: is empty, expected a header row; write the file again")
    rows, lines = [], []
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            raise ValueError(
                f"{name}, line {reader.line_num}: {len(row)} values for {len(header)} columns; "
                "correct the line"
            )
        rows.append(row)
        lines.append(reader.line_num)
    if rows and not content.endswith(("\n", "\r")):
        others = [*(own[-1] for own in rows[:-1]), *rows[-1][:-1]]
        if reason := explain_cut(rows[-1][-1], others):
            raise ValueError(f"{name}, line {lines[-1]}: {reason}")
    twice = [column for column in header if header.count(column) > 1]
    if twice:
        raise ValueError(f"{name}: two columns are named {twice[0]!r}; rename one")
    table = np.array(rows, dtype=object).reshape(-1, len(header))
    return Table(name, dict(zip(header, table.T, strict=True)), lines)


def _read_hdf5(name: str, path: Path) -> Table:
    arrays: dict[str, NDArray[Any]] = {}

    def add(key: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            arrays[key] = read_dataset(node)

    with open_hdf5(path) as file:
        file.visititems(add)
    return Table(name, arrays)


def _read_npz(name: str, path: Path) -> Table:
    try:
        # numpy does not close a damaged file that it has opened itself.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return Table(name, {key: file[key] for key in file.files})
    except (ValueError, MemoryError, OverflowError, NotImplementedError, RuntimeError) as error:
        raise ValueError(
            f"{name}: cannot be read ({error}); write arrays of numbers and text with numpy.savez"
        ) from error


def _parse_number(value: Any) -> float:
    text = value.decode() if isinstance(value, bytes) else str(value)
    if "_" in text or not text.isascii():  # which Python reads as digits
        raise ValueError(text)
    return float(text)


def _is_number(value: Any) -> bool:
    try:
        _parse_number(value)
    except (TypeError, ValueError):
        return False
    return True


_READERS: Final = {".csv": _read_csv, ".h5": _read_hdf5, ".hdf5": _read_hdf5, ".npz": _read_npz}
