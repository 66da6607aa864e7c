"""Checks of every frame, and small conversions that several formats share."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.readers import BadFrame, Floats, Frame
from pipeline_core.fields import find_field

LABELS: Final = ("energy", "forces", "stress", "magmoms")
_FLAT: Final = 1e-6  # volume over the product of the lattice vectors' lengths
_VOIGT: Final = np.array([[0, 5, 4], [5, 1, 3], [4, 3, 2]])


def make_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of JSON pairs; an `object_pairs_hook` of `json`.

    Raises:
        ValueError: A key is given twice; `json` would silently take the last value.
    """
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"damaged JSON: the key {double!r} is given twice")
    return content


def check_frame(frame: Frame) -> Frame | BadFrame:
    """Return the frame if its numbers are usable, otherwise a bad frame with the reason."""
    problem = next(_find_problems(frame), None)
    return frame if problem is None else BadFrame(frame.index, problem)


def _find_problems(frame: Frame) -> Iterator[str]:
    n_atoms = len(frame.atomic_numbers)
    if n_atoms == 0:
        yield "has no atoms"
    expected = {"positions": (n_atoms, 3), "cell": (3, 3), "pbc": (3,)}
    expected |= {name: _find_shape(name, n_atoms) for name in frame.labels}
    arrays = {"positions": frame.positions, "cell": frame.cell, "pbc": frame.pbc, **frame.labels}
    for name, array in arrays.items():
        if array.shape != expected[name]:
            yield f"{name} has shape {array.shape}, expected {expected[name]}"
        if not np.isfinite(array).all():
            yield f"{'NaN' if np.isnan(array).any() else 'infinity'} in {name}"
    if _is_flat(frame.cell[frame.pbc]):
        yield "is periodic, but its cell has no volume"


def _find_shape(label: str, n_atoms: int) -> tuple[int, ...]:
    field = find_field(label)
    return (n_atoms, *field.shape) if field.kind == "atom" else field.shape


def _is_flat(vectors: Floats) -> bool:
    """Return True if (k, 3) lattice vectors span less than k dimensions."""
    if len(vectors) == 0:
        return False
    gram = vectors @ vectors.T
    return bool(np.linalg.det(gram) <= _FLAT**2 * np.prod(np.diagonal(gram)))


@functools.cache
def _map_symbols() -> dict[str, int]:
    from ase.data import atomic_numbers

    return {symbol: z for symbol, z in atomic_numbers.items() if z > 0}


def find_atomic_numbers(symbols: Sequence[str]) -> NDArray[np.int32]:
    """Return Z of chemical symbols in any case, (n_atoms,).

    Raises:
        ValueError: A symbol is not an element.
    """
    table = _map_symbols()
    other = [s for s in symbols if not isinstance(s, str)]
    if other:
        raise ValueError(f"{str(other[0])[:20]} is not a chemical element")
    try:
        return np.array([table[symbol] for symbol in symbols], dtype=np.int32)
    except KeyError:
        pass
    unknown = sorted({s for s in symbols if s.capitalize() not in table})
    if unknown:
        raise ValueError(f"{', '.join(map(repr, unknown))} is not a chemical element")
    return np.array([table[symbol.capitalize()] for symbol in symbols], dtype=np.int32)


def make_stress_matrix(values: Floats) -> Floats:
    """Return a stress as (3, 3).

    Args:
        values: (3, 3); or 9 numbers column by column, as extended XYZ stores matrices; or 6 in
            Voigt order, xx yy zz yz xz xy.

    Raises:
        ValueError: Another number of values.
    """
    if values.shape == (3, 3):
        return values
    if values.size == 9:
        return values.reshape(3, 3, order="F")
    if values.size == 6:
        return np.take(values, _VOIGT)
    raise ValueError(f"stress has {values.size} numbers, expected 9, or 6 in Voigt order")


def parse_numbers(value: Any) -> Floats | None:
    """Convert a value to an array of floats, or None if it is not numeric."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return None
    return array.astype(np.float64) if array.dtype.kind in "fiu" else None


def require_numbers(name: str, value: Any) -> Floats:
    """Convert a value to an array of floats.

    Raises:
        ValueError: It is not numeric; the message contains `name`.
    """
    array = parse_numbers(value)
    if array is None:
        raise ValueError(f"{name} is not numeric")
    return array


def parse_label(name: str, value: Any) -> Floats:
    """Convert the value of a label in a file to an array.

    Raises:
        ValueError: It is not numeric, or cannot be a stress.
    """
    array = require_numbers(name, value)
    return make_stress_matrix(array) if name == "stress" else array


def select_plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """Keep values that are plain str, int, float or bool, NumPy scalars included."""
    scalars = {k: v.item() if isinstance(v, np.generic) else v for k, v in info.items()}
    return {k: v for k, v in scalars.items() if isinstance(v, str | int | float | bool)}
