"""Order of the orbitals of a shell in OpenMX and files of DeepH; ours is that of CP2K, m = -l to l.

Both take real harmonics with positive signs, so that only places differ.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_ORDERS: Final[tuple[tuple[int, ...], ...]] = (
    (0,),
    (1, -1, 0),  # x, y, z
    (0, 2, -2, 1, -1),  # z², x²-y², xy, xz, yz
    (0, 1, -1, 2, -2, 3, -3),
)
"""m of each orbital of a shell, by its degree."""


def order_orbitals(shells: Sequence[int]) -> NDArray[np.int64]:
    """Return the places of our orbitals in the order of OpenMX.

    Args:
        shells: Degree of each shell of an atom.

    Returns:
        Places p such that `theirs[p]` is in our order, (n_orbitals,).

    Raises:
        ValueError: The order is undefined for this degree.
    """
    if max(shells) >= len(_ORDERS):
        raise ValueError(
            f"shells of degree {max(shells)}: the order of OpenMX is defined up to degree "
            f"{len(_ORDERS) - 1}; take a basis set without them"
        )
    places: list[int] = []
    for degree in shells:
        begin, theirs = len(places), _ORDERS[degree]
        places.extend(begin + theirs.index(m) for m in range(-degree, degree + 1))
    return np.array(places, dtype=np.int64)
