"""DeePMD-kit's systems: folders of NumPy arrays, one system of fixed atoms each.

A system (https://docs.deepmodeling.com/projects/deepmd/en/stable/data/system.html) is named by its
file `type.raw`, the type of each atom; `type_map.raw` beside it has the element of each type. The
folders `set.*` hold arrays with a row per frame: `coord.npy` and `box.npy` (Å, rows of the box are
the lattice vectors), and optionally `energy.npy` (eV), `force.npy` (eV/Å) and `virial.npy` (eV). A
file `nopbc` marks a system without periodicity. In systems of mixed types `real_atom_types.npy` has
the types of each frame.

The virial is -∂E/∂ε, positive if the cell tends to expand; with the volume V it becomes the stress
-virial/V. In single precision, the default of dpdata, an energy of 10⁴ eV has an error of half a
meV.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.readers import BadFrame, Frame, Reader, Units
from pipeline_atoms.readers.frame_checks import find_atomic_numbers

_TYPES: Final = "type.raw"
_LABELS: Final = {"energy": "energy.npy", "forces": "force.npy", "virial": "virial.npy"}
_DAMAGE: Final = (
    OSError,
    ValueError,
    EOFError,
    SyntaxError,
    TokenError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    MemoryError,
)
"""Errors that NumPy raises for a damaged file."""


def read(path: Path, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read a system.

    Args:
        path: Its file `type.raw`.
        keys: Must be empty; the names of the labels are fixed.

    Yields:
        Every frame, set by set in the order of their names.

    Raises:
        ValueError: A file is missing or damaged, or the shape of its array does not fit the other
            files.
    """
    assert not keys
    if path.name != _TYPES:
        raise ValueError(f"a system of DeePMD-kit is named by its file {_TYPES}; name that")
    folder = path.parent
    elements = _read_elements(folder)
    types = _read_types(path)
    is_periodic = not (folder / "nopbc").exists()
    index = 0
    for place in _list_sets(folder):
        arrays = _Set(place, len(types), is_periodic)
        for row in range(arrays.n_frames):
            yield arrays.make_frame(row, elements, types, index)
            index += 1


def _read_types(path: Path) -> NDArray[np.int64]:
    words = path.read_text(encoding="utf-8", errors="replace").split()
    if not words or not all(word.isascii() and word.isdecimal() for word in words):
        raise ValueError("has to hold the number of the type of each atom, counted from 0")
    return np.array(words, dtype=np.int64)


def _read_elements(folder: Path) -> NDArray[np.int32]:
    """Read Z of each type."""
    path = folder / "type_map.raw"
    if not path.is_file():
        raise ValueError(
            f"{path.name}, which gives the element of each type, is missing beside it; write the "
            "symbols of types 0, 1, ... into it, one per line"
        )
    try:
        return find_atomic_numbers(path.read_text(encoding="utf-8", errors="replace").split())
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}; write the symbol of each type") from None


def _list_sets(folder: Path) -> list[Path]:
    sets = sorted(place for place in folder.glob("set.*") if place.is_dir())
    if not sets:
        cure = (
            "turn the text files into arrays with dpdata (deepmd/raw to deepmd/npy) or DeePMD-kit"
            if (folder / "coord.raw").exists()
            else "copy the whole folder of the system"
        )
        raise ValueError(f"no folder set.* lies beside it; {cure}")
    return sets


class _Set:
    """The arrays of a folder `set.*`; they are memory-mapped, and read frame by frame.

    Args:
        place: The folder.
        n_atoms: Number of atoms of the system.
        is_periodic: True if it has a box.
    """

    def __init__(self, place: Path, n_atoms: int, is_periodic: bool) -> None:
        self._place, self._n_atoms = place, n_atoms
        coord = _load(place / "coord.npy", None, (n_atoms, 3))
        self.n_frames = len(coord)
        self._arrays = {"positions": coord}
        if is_periodic:
            self._arrays["cell"] = self._load("box.npy", (3, 3))
        shapes: dict[str, tuple[int, ...]] = {
            "energy": (),
            "forces": (n_atoms, 3),
            "virial": (3, 3),
        }
        for name, file in _LABELS.items():
            if (place / file).exists():
                self._arrays[name] = self._load(file, shapes[name])
        self._types = (
            self._load("real_atom_types.npy", (n_atoms,), "iu")
            if (place / "real_atom_types.npy").exists()
            else None
        )

    def _load(self, file: str, shape: tuple[int, ...], kinds: str = "f") -> NDArray[Any]:
        return _load(self._place / file, self.n_frames, shape, kinds)

    def make_frame(
        self, row: int, elements: NDArray[np.int32], types: NDArray[np.int64], index: int
    ) -> Frame | BadFrame:
        """Return a frame; it is bad if it has unknown types."""
        values = {name: np.array(a[row], dtype=np.float64) for name, a in self._arrays.items()}
        types = types if self._types is None else np.array(self._types[row], dtype=np.int64)
        if types.min() < 0 or types.max() >= len(elements):
            wrong = types.min() if types.min() < 0 else types.max()
            return BadFrame(
                index,
                f"{self._place.name}: an atom has the type {wrong}, and type_map.raw has the types "
                f"0 to {len(elements) - 1}",
            )
        cell = values.pop("cell", np.zeros((3, 3)))
        positions = values.pop("positions")
        virial = values.pop("virial", None)
        volume = abs(float(np.linalg.det(cell)))
        if virial is not None and volume > 0:
            values["stress"] = -virial / volume
        return Frame(
            atomic_numbers=elements[types],
            positions=positions,
            cell=cell,
            pbc=np.full(3, "cell" in self._arrays),
            labels=values,
            info={"system": self._place.parent.name, "set": self._place.name},
            index=index,
        )


def _load(
    path: Path, n_frames: int | None, shape: tuple[int, ...], kinds: str = "f"
) -> NDArray[Any]:
    """Memory-map an array with a row per frame.

    Args:
        path: The file.
        n_frames: Required number of rows; None for any number.
        shape: Shape of a row; it may be stored flat, as DeePMD-kit does.
        kinds: Accepted kinds of NumPy types.

    Raises:
        ValueError: The file is missing or damaged, or holds something else.
    """
    place = f"{path.parent.name}/{path.name}"
    if not path.is_file():
        raise ValueError(f"{place}: no such file; copy the whole folder of the system")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        is_whole = array.offset + array.nbytes == path.stat().st_size
    except _DAMAGE as error:
        raise ValueError(
            f"{place}: is not a complete array of numbers from numpy.save; write it again"
        ) from error
    if not is_whole:
        raise ValueError(f"{place}: is longer than its array; write it again")
    rows = n_frames if n_frames is not None else array.shape[0] if array.ndim else 0
    allowed = [(rows, *shape), (rows, int(np.prod(shape, dtype=int)))]
    if array.shape not in allowed or array.dtype.kind not in kinds:
        expected = " or ".join(map(str, dict.fromkeys(allowed)))
        raise ValueError(
            f"{place}: holds {array.dtype} of the shape {array.shape}, expected "
            f"{'whole' if kinds == 'iu' else 'floating-point'} numbers of the shape {expected}; "
            "are all files of one system?"
        )
    reshaped: NDArray[Any] = array.reshape(rows, *shape)
    return reshaped


READER: Final = Reader(
    name="deepmd",
    summary="Systems of DeePMD-kit and dpdata (deepmd/npy), each named by its type.raw.",
    suffixes=(_TYPES,),
    units=Units(),
    read=read,
    beside=("type_map.raw", "nopbc", "set.*/*.npy"),
)
