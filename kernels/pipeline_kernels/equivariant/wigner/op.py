"""The call: checks, and the choice between implementations."""

import torch
from torch import Tensor

from pipeline_kernels.checks import FLOATING, check_tensor
from pipeline_kernels.equivariant.wigner import cpu, reference
from pipeline_kernels.native import prefer_c


def compute_edge_frames(vectors: Tensor, lmax: int, dtype: torch.dtype | None = None) -> Tensor:
    """Calculate the Wigner matrices that turn each edge onto the polar axis.

    Made once per structure: 660 bytes an edge in float32 at `lmax` = 4. No derivative.

    Args:
        vectors: edge vectors `(n_edges, 3)` in the order x, y, z, of any length but 0.
        lmax: highest degree.
        dtype: of the result, by default the dtype of `vectors`; calculated in float64 either way.

    Returns:
        The blocks `D_0, ..., D_lmax` of each edge, each by rows, `(n_edges, count_entries(lmax))`.

    Raises:
        ValueError: if shapes or degree are wrong, or an edge has no direction.
    """
    check_tensor("vectors", vectors, ("n_edges", 3), FLOATING)
    if lmax < 0:
        raise ValueError(f"lmax: expected at least 0, got {lmax}")
    exact, dtype = vectors.detach().double(), dtype or vectors.dtype
    lengths = torch.linalg.vector_norm(exact, dim=1)
    if not bool(((lengths > 0) & lengths.isfinite()).all()):
        raise ValueError("vectors: expected edges of finite length above 0, since others have no "
                         "direction; leave edges of an atom to itself out")  # fmt: skip
    return prefer_c(exact, cpu.build_frames, reference.build_frames)(exact, lmax, dtype)
