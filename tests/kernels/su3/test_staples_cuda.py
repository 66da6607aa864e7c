"""Staples by Triton: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: the formula in plain PyTorch (`reference`).
"""

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.su3.staples import reference

LIMITS = {torch.complex64: 1e-5, torch.complex128: 1e-13}
CASES = [
    (2, torch.complex64, (2, 1, 1), 3, 2, 1),
    (3, torch.complex128, (1, 3), 2, 1, 3),
]


def make_case(n_colours, dtype, extents, batch, n_in, n_out):
    """Fields, coefficients, derivatives by the result, and the tables of a lattice."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.complex128).to(dtype)

    D, V = len(extents), math.prod(extents)
    sites = torch.arange(V).view(extents)
    forward, backward = (
        torch.stack([sites.roll(by, d).flatten() for d in range(D)]) for by in (-1, 1)
    )
    S, G = (normal(batch, n, D, V, n_colours, n_colours) for n in (n_in, n_out))
    coefficients = normal(n_out, n_in * (2 * D - 1)).real.contiguous()
    return S, coefficients, G, forward, backward, torch.rand(D, V, generator=generator) < 0.6


def close(result, expected, dtype):
    scale = float(expected.abs().max())
    assert result.dtype == expected.dtype
    assert_close(result / scale, expected / scale, rtol=0, atol=LIMITS[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", CASES)
def test_interpreted_kernels_equal_the_reference(interpreted, arguments):
    from pipeline_kernels.su3.staples import cuda

    S, coefficients, G, *plan = make_case(*arguments)
    result = interpreted(cuda.staple_layer, S, coefficients, *plan)
    close(result, reference.staple_layer(S, coefficients, *plan), S.dtype)
    grads = interpreted(cuda.staple_gradient, S, coefficients, G, *plan)
    expected = reference.staple_gradient(S, coefficients, G, *plan)
    for ours, theirs in zip(grads, expected, strict=True):
        close(ours, theirs, S.dtype)


def iterate_kernels(pointer, dimension, n_colours):
    """Yield kernels with their signatures and constants."""
    from pipeline_kernels.su3.staples import cuda

    tables, sizes = ("*i64", "*i64", "*i8"), ("i32", "i32", "i32")
    constants = {"D": dimension, "N": n_colours, "BLOCK": cuda.BLOCK}
    for kernel, n_arrays in [(cuda._multiply_staples, 2), (cuda._differentiate_link, 3)]:
        signature = {"arrays": (pointer,) * n_arrays, "tables": tables, "sizes": sizes}
        yield kernel, signature | dict.fromkeys(constants, "constexpr"), constants


@pytest.mark.slow
def test_kernels_compile_for_a_gpu(compiled):
    for case in iterate_kernels("*fp32", 2, 2):
        assert compiled(90, *case)["cubin"]


@pytest.mark.slow
@pytest.mark.parametrize("pointer", ["*fp32", "*fp64"])
def test_kernels_in_four_dimensions_are_understood_by_the_compiler(front_end, pointer):
    for case in iterate_kernels(pointer, 4, 3):
        assert "tt.store" in front_end(90, *case)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize("tile_bytes", [2**28, 2**18])
def test_gpu_equals_the_reference(gpu, monkeypatch, dtype, tile_bytes):
    from pipeline_kernels.su3.staples import cuda

    monkeypatch.setattr(cuda, "TILE_BYTES", tile_bytes)
    S, coefficients, G, *plan = make_case(3, dtype, (4, 2, 3, 2), 17, 5, 4)
    there = [x.to(gpu) for x in plan]
    result = cuda.staple_layer(S.to(gpu), coefficients.to(gpu), *there)
    close(result.cpu(), reference.staple_layer(S, coefficients, *plan), dtype)
    grads = cuda.staple_gradient(S.to(gpu), coefficients.to(gpu), G.to(gpu), *there)
    expected = reference.staple_gradient(S, coefficients, G, *plan)
    for ours, theirs in zip(grads, expected, strict=True):
        close(ours.cpu(), theirs, dtype)
