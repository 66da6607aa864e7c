"""Raw HDF5 files, with checks for damage that h5py would not report well."""

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

DAMAGE: Final = (
    OSError,
    RuntimeError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    IndexError,
)
"""Errors that h5py raises for a damaged file"""
_EXPANSION: Final = 2000
"""Largest ratio of the bytes of an array to the bytes of the file; zeros reach 1000."""
_HEAP: Final = b"GCOL\x01\0\0\0"
"""First bytes of a collection of the global heap, which holds texts: signature and version."""


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Open a raw file for reading, with errors that name it.

    Raises:
        ValueError: The file is damaged, or h5py raises an error within the context.
    """
    try:
        _require_heaps(path)
        with h5py.File(path) as file:
            yield file
    except (*DAMAGE, ValueError) as error:
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        raise ValueError(f"{path}: cannot be read ({error}); fetch or write it again") from error


def _require_heaps(path: Path) -> None:
    """Check the collections of the global heap: HDF5 would search damaged ones without end.

    "HDF5 File Format Specification", version 3.0, section III.E: a collection is a header of 16
    bytes, of which the last 8 are its size, and objects. These have headers of 16 bytes (index,
    references, padding, size) and data in whole groups of 8 bytes. The object 0 is what is free.

    Raises:
        OSError: An object does not end within its collection.
    """
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_HEAP)
        while start >= 0:
            if not _is_sound(content, start):
                raise OSError(f"the heap at byte {start} is damaged")
            start = content.find(_HEAP, start + len(_HEAP))


def _is_sound(content: mmap.mmap, start: int) -> bool:
    """Return True if the objects of a collection fill it exactly."""
    size = int.from_bytes(content[start + 8 : start + 16], "little")
    place, end = start + 16, start + size
    if end > len(content):
        return False
    while place + 16 <= end:
        index, length = struct.unpack("<H6xQ", content[place : place + 16])
        if index == 0:
            return place + int(length) == end
        place += 16 + (length + 7) // 8 * 8
    return place <= end


def read_dataset(node: h5py.Dataset) -> NDArray[Any]:
    """Return all elements of a dataset, after a check of its size against the file.

    Raises:
        OSError: The file is far too small for it.
        TypeError: It is not a dataset.
    """
    if not isinstance(node, h5py.Dataset):
        raise TypeError(f"{node.name} is not a dataset")
    most = _EXPANSION * node.file.id.get_filesize()
    if node.size is None or node.nbytes > most:
        raise OSError(
            f"{node.name} should have the shape {node.shape}, more than its file can hold: damaged"
        )
    return np.asarray(node[()])
