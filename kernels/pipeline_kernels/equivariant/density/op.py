"""The call: checks, and the choice between implementations."""

import torch
from torch import Tensor

from pipeline_kernels.checks import FLOATING, check_tensor
from pipeline_kernels.equivariant.density import cpu, reference
from pipeline_kernels.equivariant.density.basis import DensityBasis
from pipeline_kernels.message import Segments
from pipeline_kernels.native import prefer_c


def bond_density(
    vectors: Tensor,
    kinds: Tensor,
    receivers: Segments,
    basis: DensityBasis,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Project the density of atoms around the middle of each edge on a basis.

    No derivative by the vectors, as of `compute_edge_frames`.

    Args:
        vectors: from receiver to sender of each edge, `(n_edges, 3)`, Å.
        kinds: of the senders, from 0 to `n_kinds` - 1, `(n_edges,)` int64.
        receivers: of the edges. All edges of an atom up to half of its longest one plus the cutoff
            of the basis have to be there; atoms beyond them are missed without a word.
        basis: functions of the place of an atom.
        dtype: of the result, by default the dtype of `vectors`; calculated in float64 either way.

    Returns:
        `(n_edges, (lmax + 1)^2, n_kinds * n_functions)`, components ordered as
        `compute_edge_frames` has them, functions of one kind side by side.

    Raises:
        ValueError: if shapes, types or kinds are wrong.
    """
    n_edges = receivers.n_elements
    check_tensor("vectors", vectors, (n_edges, 3), FLOATING)
    check_tensor("kinds", kinds, (n_edges,), (torch.int64,))
    if n_edges and not 0 <= int(kinds.min()) <= int(kinds.max()) < basis.n_kinds:
        raise ValueError(
            f"kinds: expected 0 to n_kinds - 1 = {basis.n_kinds - 1}, got {int(kinds.min())} to "
            f"{int(kinds.max())}"
        )
    arguments = vectors.detach().double(), kinds, receivers, basis, dtype or vectors.dtype
    return prefer_c(vectors, cpu.bond_density, reference.bond_density)(*arguments)
