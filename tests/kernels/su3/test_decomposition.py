"""Eigenangles and projectors of the spectral map's reference.

Oracles: torch.linalg.eigvals, angles from which matrices are made.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from kernels.su3.matrices import (
    COLOURS,
    TURN,
    draw_unitary,
    draw_with_angles,
    make_close_angles,
)
from pipeline_kernels.su3.spectral.decomposition import decompose

# In units of pi, descending, of sum zero; the last of each is at a wall of the canonical cell.
CHOSEN = {
    2: [[0.3, -0.3], [0.999, -0.999], [1, -1]],
    3: [[0.7, 0.1, -0.8], [0.9, 0.2, -1.1], [1.2, -0.5, -0.7], [0.6, 0.6, -1.2], [1, 0, -1]],
}
ANGLES = [
    angles
    for N in COLOURS
    for chosen in [math.pi * torch.tensor(CHOSEN[N], dtype=torch.float64)]
    for angles in (
        chosen,
        *(scale * chosen[:1] for scale in (1e-2, 1e-6, 1e-10)),  # near the centre
        *(make_close_angles(N, gap) for gap in (1e-2, 1e-6, 1e-10, 1e-15, 0)),
    )
]


@pytest.mark.parametrize("n_colours", COLOURS)
def test_equal_those_of_torch_in_the_canonical_cell(n_colours):
    U = draw_unitary(4003, n_colours)
    (angles, _), theirs = decompose(U), torch.linalg.eigvals(U).angle().sort(-1).values
    assert angles.dtype == torch.float64
    reduced = (torch.remainder(angles + math.pi, TURN) - math.pi).sort(-1).values
    assert_close(reduced, theirs, rtol=0, atol=1e-14)
    assert (angles.diff(dim=-1) <= 0).all()
    assert (angles[:, 0] - angles[:, -1] <= TURN).all()
    assert_close(angles.sum(-1), torch.zeros(4003).double(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("angles", ANGLES)
def test_are_those_the_matrix_was_made_with(angles):
    """However close they are: none of their digits is lost."""
    assert_close(decompose(draw_with_angles(angles))[0], angles, rtol=0, atol=2e-14)
