"""Counter-based random numbers, independent of the order of draws and the number of threads.

Philox-4x32-10 of Salmon, Moraes, Dror and Shaw, SC11 (2011), doi:10.1145/2063384.2063405.
"""

import numpy as np
from numba import uint32, uint64
from numpy.typing import NDArray

from pipeline_kernels.jit import njit

Key = NDArray[np.uint32]
"""Two numbers."""
Stream = tuple[np.uint32, np.uint32, np.uint32]

_ROUNDS = 10
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_TO_UNIT = 2.0**-53
_SHIFT = np.uint64(11)


@njit(nogil=True, inline="always")
def draw_philox(
    c0: np.uint32, c1: np.uint32, c2: np.uint32, c3: np.uint32, k0: np.uint32, k1: np.uint32
) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Return four random uint32 from a counter of four and a key of two, all uint32."""
    for _ in range(_ROUNDS):
        p0, p1 = _M0 * uint64(c0), _M1 * uint64(c2)
        c0, c1, c2, c3 = (
            uint32(uint32(p1 >> _HALF) ^ c1 ^ k0),
            uint32(p1 & _LOW),
            uint32(uint32(p0 >> _HALF) ^ c3 ^ k1),
            uint32(p0 & _LOW),
        )
        k0, k1 = uint32(k0 + _W0), uint32(k1 + _W1)
    return c0, c1, c2, c3


@njit(nogil=True, inline="always")
def draw_uniforms(draw: int, stream: Stream, key: Key) -> tuple[float, float]:
    """Return two numbers in (0, 1).

    Args:
        draw: Number of the draw within the stream.
        stream: Three uint32.
        key: Two uint32.
    """
    a, b, c, d = draw_philox(uint32(draw), stream[0], stream[1], stream[2], key[0], key[1])
    # The half keeps logarithms finite.
    x = ((uint64(a) << _HALF | uint64(b)) >> _SHIFT) + 0.5
    y = ((uint64(c) << _HALF | uint64(d)) >> _SHIFT) + 0.5
    return x * _TO_UNIT, y * _TO_UNIT


def make_key(seed: int, number: int) -> Key:
    """Return a key (2,) uint32 for a seed and a number, such as a Markov chain's."""
    state = np.random.SeedSequence([seed, number]).generate_state(2, np.uint32)
    return state.astype(np.uint32)
