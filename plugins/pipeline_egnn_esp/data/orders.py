"""Orders of the orbitals of a shell in other codes; ours is m = -l, ..., l, as in CP2K.

All of them take real harmonics with positive signs, so that only places differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Order = Literal["cp2k", "openmx", "pyscf"]

_OPENMX: Final[dict[int, tuple[int, ...]]] = {
    1: (1, -1, 0),  # x, y, z
    2: (0, 2, -2, 1, -1),  # z², x²-y², xy, xz, yz
    3: (0, 1, -1, 2, -2, 3, -3),
}
"""m of each orbital in OpenMX, and in the files of DeepH from any code."""
_PYSCF: Final[dict[int, tuple[int, ...]]] = {1: (1, -1, 0)}
"""Cartesian for p only; other shells have ascending m."""
_TABLES: Final[dict[str, dict[int, tuple[int, ...]]]] = {
    "cp2k": {},
    "openmx": _OPENMX,
    "pyscf": _PYSCF,
}
_LARGEST_OPENMX: Final = 3


def order_orbitals(shells: Sequence[int], order: Order) -> NDArray[np.int64]:
    """Return the places of our orbitals in the order of another code.

    Args:
        shells: Degree of each shell of an atom.
        order: Name of the other order.

    Returns:
        Places p such that `theirs[p]` is in our order, (n_orbitals,).

    Raises:
        ValueError: The order is undefined for this degree.
    """
    if order == "openmx" and max(shells) > _LARGEST_OPENMX:
        raise ValueError(
            f"shells of degree {max(shells)}: the order of OpenMX is defined up to degree "
            f"{_LARGEST_OPENMX}; write the matrices in ascending m and set order: cp2k"
        )
    places: list[int] = []
    begin = 0
    for degree in shells:
        rising = tuple(range(-degree, degree + 1))
        theirs = _TABLES[order].get(degree, rising)
        places.extend(begin + theirs.index(m) for m in rising)
        begin += 2 * degree + 1
    return np.array(places, dtype=np.int64)
