"""Raw HDF5 files that are damaged. Oracle: where the specification of HDF5 puts objects."""

import h5py
import numpy as np
import pytest

from pipeline_core.data.hdf5 import open_hdf5

SIZE = 8  # of a length, bytes


@pytest.fixture
def path(tmp_path):
    """A file with a text of variable length, which lies in the global heap."""
    result = tmp_path / "raw.h5"
    with h5py.File(result, "w") as file:
        file.attrs["unit"] = "hartree"
        file["x"] = np.arange(3.0)
    return result


def find_heap(path):
    """Return where the first object of the heap begins."""
    return path.read_bytes().index(b"GCOL") + 16


def overwrite(path, place, number):
    content = bytearray(path.read_bytes())
    content[place : place + SIZE] = number.to_bytes(SIZE, "little")
    path.write_bytes(content)


@pytest.mark.parametrize("place", [0, SIZE])
def test_a_heap_without_an_end_is_refused(path, place):
    # An object 0 without a size: HDF5 itself would look behind it for ever.
    overwrite(path, find_heap(path) + place, 0 if place == 0 else 2**40)
    reason = r"raw\.h5: cannot be read \(the heap at byte \d+ is damaged\)"
    with pytest.raises(ValueError, match=reason), open_hdf5(path):
        pass


@pytest.mark.parametrize("word", [b"", b"text", b"GCOL\x01\0\0\0", b"GCOL\x01\0\0\0\xff"])
def test_what_is_no_hdf5_is_named(tmp_path, word):
    path = tmp_path / "raw.h5"
    path.write_bytes(word)
    with pytest.raises(ValueError, match=r"raw\.h5: cannot be read"), open_hdf5(path):
        pass


def test_errors_of_h5py_name_the_file_and_others_stay(path):
    with open_hdf5(path) as file:
        assert file.attrs["unit"] == "hartree"
        assert file["x"][()].tolist() == [0.0, 1.0, 2.0]
    reason = r"raw\.h5: cannot be read \(.*y.*\); fetch"
    with pytest.raises(ValueError, match=reason), open_hdf5(path) as file:
        file["y"]
    with pytest.raises(ValueError, match=rf"^{path}: holds nothing$"), open_hdf5(path):
        raise ValueError(f"{path}: holds nothing")
