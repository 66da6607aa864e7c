"""Raw HDF5 files, which may be damaged: h5py then raises whatever HDF5 trips over."""

from __future__ import annotations

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
"""Largest ratio of the bytes of an array to those of the file; arrays of zeros reach 1000."""


def read_dataset(node: h5py.Dataset) -> NDArray[Any]:
    """Return all elements of a dataset, unless it promises more than its file can hold.

    Raises:
        OSError: The file is far too small for it.
        TypeError: It is no dataset.
    """
    if not isinstance(node, h5py.Dataset):
        raise TypeError(f"{node.name} is no dataset")
    most = _EXPANSION * node.file.id.get_filesize()
    if node.size is None or node.nbytes > most:
        raise OSError(
            f"{node.name} is to have the shape {node.shape}, more than its file can hold: damaged"
        )
    return np.asarray(node[()])
