"""CP2K's files of sparse matrices: one element a line, or one Fortran record each."""

import io
import warnings
import zlib
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_core.data.files import open_bytes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_RECORD: Final = np.dtype([("begin", "<i4"), ("row", "<i4"), ("column", "<i4"),
                           ("value", "<f8"), ("end", "<i4")])  # fmt: skip
_LENGTH: Final = 16
"""Bytes of a record between its two marks."""
_MOST: Final = 2**31
_LINES: Final = 2**16
"""Lines that are written at a time, which take more memory than the numbers."""


def read_csr(path: Path, n_orbitals: int) -> tuple[Ints, Ints, Floats]:
    """Read a matrix, text or binary, plain or compressed; an empty file is a matrix of zeros.

    Args:
        path: File from &KS_CSR_WRITE or &S_CSR_WRITE.
        n_orbitals: Rows and columns of the matrix.

    Returns:
        Rows, columns, both counted from 0, and values, (n,) each.

    Raises:
        ValueError: The file is damaged, or holds a larger matrix.
    """
    try:
        with open_bytes(path) as file:
            content = file.read()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}); write it again") from error
    is_binary = content[:4] == _LENGTH.to_bytes(4, "little")
    row, column, value = (_parse_binary if is_binary else _parse_text)(path, content)
    for name, place in (("row", row), ("column", column)):
        if len(place) and not 0 <= place.min() <= place.max() < n_orbitals:
            raise ValueError(
                f"{path}: has an element in {name} {int(place.max()) + 1}, but the basis gives "
                f"{n_orbitals} orbitals for this structure; correct the basis of the source, or "
                "the structure"
            )
    return row, column, value


def _parse_binary(path: Path, content: bytes) -> tuple[Ints, Ints, Floats]:
    if len(content) % _RECORD.itemsize:
        raise ValueError(
            f"{path}: truncated: {len(content)} bytes are not a whole number of records of "
            f"{_RECORD.itemsize}; write it again"
        )
    records = np.frombuffer(content, dtype=_RECORD)
    if (records["begin"] != _LENGTH).any() or (records["end"] != _LENGTH).any():
        raise ValueError(f"{path}: damaged: a record has no mark at its ends; write it again")
    return _count_from_zero(records["row"], records["column"], records["value"])


def _parse_text(path: Path, content: bytes) -> tuple[Ints, Ints, Floats]:
    if not content:
        return _count_from_zero([], [], [])
    if not content.endswith(b"\n"):
        raise ValueError(f"{path}: truncated: its last line has no end; write it again")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            table = np.loadtxt(io.BytesIO(content), ndmin=2, dtype=np.float64)
    except (ValueError, UserWarning) as error:
        raise ValueError(f"{path}: is not a matrix of CP2K ({error}); write it again") from error
    if table.shape[1] != 3:
        raise ValueError(
            f"{path}: lines of {table.shape[1]} numbers, expected row, column, value; set "
            "UPPER_TRIANGULAR, THRESHOLD and BINARY as you like, but no other format"
        )
    places = table[:, :2]
    if not (np.isfinite(places).all() and (places == np.rint(places)).all()):
        raise ValueError(f"{path}: a row or column is not a whole number; write it again")
    if (np.abs(places) > _MOST).any():
        raise ValueError(f"{path}: a row or column is beyond any matrix; write it again")
    return _count_from_zero(*table.T)


def _count_from_zero(
    row: ArrayLike, column: ArrayLike, value: ArrayLike
) -> tuple[Ints, Ints, Floats]:
    rows, columns = np.asarray(row, dtype=np.int64) - 1, np.asarray(column, dtype=np.int64) - 1
    return rows, columns, np.asarray(value, dtype=np.float64)


def write_csr(path: Path, row: Ints, column: Ints, value: Floats) -> None:
    """Write a matrix as CP2K does: text, counted from 1, by rows.

    Args:
        path: The file.
        row: (n,) counted from 0.
        column: (n,) counted from 0.
        value: (n,) in the units of CP2K, Hartree for a Hamiltonian.
    """
    order = np.lexsort([column, row])
    with path.open("w") as file:
        for begin in range(0, len(order), _LINES):
            piece = order[begin : begin + _LINES]
            lines = zip(*(x[piece].tolist() for x in (row, column, value)), strict=True)
            # Sixteen digits after the point keep a double exactly.
            file.writelines(f"{i + 1:8d}{j + 1:8d} {x:24.16E}\n" for i, j, x in lines)
