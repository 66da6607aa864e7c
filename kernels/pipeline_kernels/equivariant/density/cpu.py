"""The density on the CPU, in C: an edge at a time, with its sums in the cache."""

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels.checks import REAL
from pipeline_kernels.equivariant.density.basis import SOFTENING, DensityBasis
from pipeline_kernels.equivariant.harmonics import compute_harmonic_norms
from pipeline_kernels.message import Segments
from pipeline_kernels.native import call_routine, compute_size, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads


def bond_density(
    vectors: Tensor, kinds: Tensor, receivers: Segments, basis: DensityBasis, dtype: torch.dtype
) -> Tensor:
    """Implement `op.bond_density`."""
    kept = dtype if dtype in REAL else torch.float32
    density = vectors.new_empty(len(vectors), *basis.shape, dtype=kept)
    if density.numel() == 0:
        return density.to(dtype)
    lists = kinds, receivers.index, receivers.order, receivers.offsets
    coordinates, *indices = (make_plain(x) for x in (vectors, *lists))
    norms = np.ascontiguousarray(compute_harmonic_norms(basis.lmax))
    most = int(receivers.offsets.diff().max())
    sizes = len(vectors), most, basis.lmax, basis.n_functions, basis.n_kinds, kept == torch.float32
    lengths = float(basis.cutoff), float(basis.width), SOFTENING
    work = pack(coordinates, norms, *indices, density, *sizes, *lengths)
    library = load_library("density", torch.float64)
    n_bytes = 8 * compute_size(library, "memory_size", work)
    n_threads = choose_threads(density.numel())
    call_routine(library, "project_edges", work, n_threads=n_threads, n_bytes=n_bytes)
    return density.to(dtype)
