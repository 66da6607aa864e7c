"""The frames on the CPU, in C. Edges are independent: no result depends on the threads."""

import torch
from torch import Tensor

from pipeline_kernels.checks import REAL
from pipeline_kernels.equivariant.wigner.reference import build_tables, count_entries
from pipeline_kernels.native import call_routine, compute_size, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads


def build_frames(vectors: Tensor, lmax: int, dtype: torch.dtype) -> Tensor:
    """Implement `reference.build_frames`."""
    kept = dtype if dtype in REAL else torch.float32
    frames = vectors.new_empty(len(vectors), count_entries(lmax), dtype=kept)
    vectors, (table, *_) = make_plain(vectors), build_tables(lmax)
    sizes = len(vectors), lmax, count_entries(lmax), kept == torch.float32
    work, library = pack(vectors, table, frames, *sizes), load_library("wigner", torch.float64)
    n_bytes = 8 * compute_size(library, "memory_size", work)
    n_threads = choose_threads(frames.numel())
    call_routine(library, "build", work, n_threads=n_threads, n_bytes=n_bytes)
    return frames.to(dtype)
