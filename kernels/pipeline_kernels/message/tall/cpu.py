"""Both products on the CPU, in C. No sum depends on the number of threads."""

import ctypes

from torch import Tensor

from pipeline_kernels.native import call_routine, compute_size, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads

PIECES = 2  # per thread


def multiply(x: Tensor, A: Tensor) -> Tensor:
    """Return x A."""
    (n_rows, depth), width = x.shape, A.shape[1]
    library = load_library("tall", x.dtype)
    out = x.new_empty(n_rows, width)
    panels = _lay_panels(library, A.resolve_neg().resolve_conj())
    _run(library, "multiply_rows", x, panels, out, (n_rows, depth, width, 1, 1))
    return out


def _lay_panels(library: ctypes.CDLL, A: Tensor) -> Tensor:
    """Return the matrix as panels of columns, (n_panels, K, columns)."""
    (depth, width), columns = A.shape, compute_size(library, "count_columns")
    panels = A.new_empty(-(-width // columns), depth, columns)
    layout = pack(A.data_ptr(), panels, depth, width, *A.stride())
    call_routine(library, "lay_panels", layout, n_threads=choose_threads(A.numel()))
    return panels


def sum_products(x: Tensor, g: Tensor) -> Tensor:
    """Return x^T g."""
    (n_rows, height), width = x.shape, g.shape[1]
    if height > width:  # long rows are read as they lie
        return sum_products(g, x).T.contiguous()
    library = load_library("tall", x.dtype)
    out = x.new_empty(height, width)
    most = PIECES * choose_threads(x.numel() * width)
    n_panels = -(-width // compute_size(library, "count_columns"))
    across = max(1, min(n_panels, most))
    down = max(1, min(-(-height // compute_size(library, "count_rows")), most // across))
    _run(library, "sum_rows", x, g, out, (n_rows, height, width, across, down))
    return out


def _run(
    library: ctypes.CDLL, name: str, a: Tensor, b: Tensor, out: Tensor, sizes: tuple[int, ...]
) -> None:
    """Call a routine in as many threads as its work repays."""
    if not out.numel():
        return
    a, b = make_plain(a), make_plain(b)
    work = pack(a, b, out, *sizes)
    n_threads = choose_threads(sizes[0] * sizes[1] * sizes[2])
    call_routine(library, name, work, n_threads=n_threads)
