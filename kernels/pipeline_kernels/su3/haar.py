"""Matrices drawn from the Haar measure of SU(2) and SU(3)."""

import torch
from torch import Tensor

from pipeline_kernels.checks import COMPLEX
from pipeline_kernels.su3.projection import project


def draw_haar(
    n: int,
    n_colours: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.complex128,
) -> Tensor:
    """Draw special unitary matrices from the Haar measure.

    The density of a matrix of independent complex normal numbers does not change when it is
    multiplied by a unitary matrix. Nor then does that of its projection to SU(N) when it is
    multiplied by one of SU(N), and only the Haar measure has this property.

    Args:
        n: number of matrices.
        n_colours: 2 or 3.
        generator: of random numbers; the result is on its device.
        dtype: complex64 or complex128; the same generator gives the same matrices for both, up to
            rounding.

    Returns:
        Matrices `(n, n_colours, n_colours)`.

    Raises:
        ValueError: if an argument is out of range.
    """
    if n_colours not in {2, 3} or n < 0:
        raise ValueError(f"n, n_colours: expected n >= 0 and 2 or 3, got {n} and {n_colours}")
    if dtype not in COMPLEX:
        raise ValueError(f"dtype: expected one of {COMPLEX}, got {dtype}")
    normal = torch.randn(
        n,
        n_colours,
        n_colours,
        generator=generator,
        dtype=torch.complex128,
        device=generator.device if generator is not None else None,
    )
    return project(normal).to(dtype)
