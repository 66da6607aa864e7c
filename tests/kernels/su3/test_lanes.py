"""Samples or places as lanes: how long the vectors are that hold them."""

import pytest
import torch

from pipeline_kernels import native
from pipeline_kernels.su3 import lanes


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_samples_that_one_vector_holds_are_given_shorter_ones(compiled_c, dtype):
    if native.choose_level() not in native.SHORTER:
        pytest.skip("this processor has no longer and shorter vectors")
    longest = native.compute_size(lanes.load_library("staples", 3, dtype), "n_lanes")
    for n_samples, expected in ((1, longest // 2), (longest, longest // 2), (longest + 1, longest)):
        library = lanes.load_for_samples("staples", torch.empty(n_samples, 1, 3, 3, dtype=dtype))

        assert native.compute_size(library, "n_lanes") == expected


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("n_colours", [2, 3])
def test_vectors_that_places_or_numbers_half_fill_are_shorter(compiled_c, dtype, n_colours):
    if native.choose_level() not in native.SHORTER:
        pytest.skip("this processor has no longer and shorter vectors")
    longest = native.compute_size(lanes.load_library("paths", n_colours, dtype), "n_lanes")
    full = longest if 2 * n_colours**2 > longest // 2 else longest // 2
    for n_places, expected in ((longest // 2, longest // 2), (longest // 2 + 1, full)):
        links = torch.empty(1, 1, n_colours, n_colours, dtype=dtype)
        library = lanes.load_for_places("paths", links, n_places)

        assert native.compute_size(library, "n_lanes") == expected
