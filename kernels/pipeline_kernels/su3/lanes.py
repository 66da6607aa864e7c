"""C libraries whose vector lanes hold the same element of several matrices, samples, or places.

If matrices are independent, they are the lanes of vectors, and the C of a family is based on
vectors.c, matrices.c and blocks.c. If links of a sample interact, the lanes are samples, or places
with the same pattern of links, and it is based on fields.c: batches smaller than a vector of
samples gain little.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.threads import choose_threads


def run_matrices(family: str, routine: str, arrays: Sequence[Tensor], *numbers: int) -> None:
    """Call a routine for all matrices, in as many threads as they repay.

    Args:
        family: name of the folder.
        routine: name of the function; its last arrays are results, which it fills.
        arrays: `(n, ...)`, the first complex and `(n, N, N)`; results contiguous.
        numbers: further arguments.
    """
    n, n_colours = arrays[0].shape[:2]
    if n == 0:
        return
    library = load_library(family, n_colours, arrays[0].dtype)
    plain = [native.make_plain(array) for array in arrays]
    n_threads = choose_threads(2 * sum(array.numel() for array in plain))
    native.call_routine(library, routine, *plain, *numbers, n, n_threads=n_threads)


def count_blocks(library: ctypes.CDLL, n_samples: int) -> int:
    """Return the number of vectors that `n_samples` samples fill."""
    return -(-n_samples // native.compute_size(library, "n_lanes"))


def load_library(family: str, n_colours: int, dtype: torch.dtype, level: str = "") -> ctypes.CDLL:
    """Load the library of a family.

    Args:
        family: name of the folder.
        n_colours: 2 or 3.
        dtype: of the matrices.
        level: as `native.load_library` takes it.

    Raises:
        UnavailableError: if it cannot be had.
    """
    return native.load_library(f"su3_{family}", dtype, level=level, N=str(n_colours))


def load_for_samples(family: str, links: Tensor) -> ctypes.CDLL:
    """Load the library of a family whose lanes are samples, with shorter vectors for few samples.

    What one vector holds one thread calculates: halves of it are for two, or one of them has no
    sample. The choice does not depend on the number of threads, nor then does any bit of a result.

    Args:
        family: name of the folder.
        links: samples first, matrices last.

    Raises:
        UnavailableError: if it cannot be had.
    """
    kind = family, links.shape[-1], links.dtype
    library = load_library(*kind)
    is_one_vector = count_blocks(library, len(links)) == 1
    return load_shorter(*kind) if is_one_vector else library


def load_for_places(family: str, links: Tensor, n_places: int) -> ctypes.CDLL:
    """Load the library of a family whose lanes are places, with shorter vectors where they do.

    Numbers of a matrix are moved as many at once as there are lanes; half of the lanes do where
    there are no more numbers, or places.

    Args:
        family: name of the folder.
        links: matrices last.
        n_places: how many are calculated alike.

    Raises:
        UnavailableError: if it cannot be had.
    """
    n_colours = links.shape[-1]
    library = load_library(family, n_colours, links.dtype)
    half = native.compute_size(library, "n_lanes") // 2
    is_enough = min(n_places, 2 * n_colours**2) <= half
    return load_shorter(family, n_colours, links.dtype) if is_enough else library


def load_shorter(family: str, n_colours: int, dtype: torch.dtype) -> ctypes.CDLL:
    """Load the library with vectors half as long, or as long where this processor has no others."""
    level = native.SHORTER.get(native.choose_level(), "")
    return load_library(family, n_colours, dtype, level)
