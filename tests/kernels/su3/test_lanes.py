"""Samples or places as lanes: how long the vectors are that hold them."""

import pytest
import torch

from kernels.su3.matrices import COLOURS
from pipeline_kernels import native
from pipeline_kernels.su3 import lanes


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("n_colours", COLOURS)
def test_what_half_a_vector_holds_is_given_shorter_ones(compiled_c, dtype, n_colours):
    """Samples that one holds; places, or numbers of a matrix, that fill the half of one."""
    if native.choose_level() not in native.SHORTER:
        pytest.skip("this processor has no longer and shorter vectors")
    longest, places = (
        native.compute_size(lanes.load_library(family, n_colours, dtype), "n_lanes")
        for family in ("staples", "paths")
    )
    full = places if 2 * n_colours**2 > places // 2 else places // 2
    for n, expected in ((1, longest // 2), (longest, longest // 2), (longest + 1, longest)):
        links = torch.empty(n, 1, n_colours, n_colours, dtype=dtype)
        library = lanes.load_for_samples("staples", links)
        assert native.compute_size(library, "n_lanes") == expected
    for n, expected in ((places // 2, places // 2), (places // 2 + 1, full)):
        library = lanes.load_for_places("paths", links, n)
        assert native.compute_size(library, "n_lanes") == expected
