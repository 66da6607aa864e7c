"""Triton kernels of eigenangles and the spectral map: interpreted, compiled, and on a GPU.

Oracle: plain PyTorch (the references), whose tests have oracles from elsewhere.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.su3 import eigenangles, spectral_map
from pipeline_kernels.su3.angles import reference as angles_reference
from pipeline_kernels.su3.spectral import reference as spectral_reference

COLOURS = [2, 3]
DIRECTIONS = [False, True]
POINTERS = {torch.complex64: "*fp32", torch.complex128: "*fp64"}
# Single precision matrices are no unitary ones in double, and each treats that in its way.
EXACT = {torch.complex64: 2e-3, torch.complex128: 1e-9}


def draw_case(unitary, n, n_colours, bins, dtype=torch.complex128, device="cpu"):
    """Matrices, parameters, and derivatives by both results."""
    generator = torch.Generator().manual_seed(n)
    sizes = (n, n_colours - 1, 3 * bins + 1)
    parameters = torch.randn(sizes, generator=generator, dtype=torch.float64)
    by_W = torch.randn(n, n_colours, n_colours, generator=generator, dtype=dtype)
    by_log_det = torch.randn(n, generator=generator, dtype=torch.float64)
    case = (unitary(n, n_colours).to(dtype), parameters, by_W, by_log_det)
    return [x.to(device) for x in case]


def check(result, expected, dtype):
    for ours, theirs in zip(result, expected, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        assert ours.dtype == theirs.dtype
        assert_close(ours, theirs, rtol=EXACT[dtype], atol=EXACT[dtype] * scale)


@pytest.mark.slow
@pytest.mark.parametrize("n_colours", COLOURS)
def test_interpreted_angles_equal_the_reference(interpreted, unitary, n_colours):
    from pipeline_kernels.su3.angles import cuda as angles_cuda

    U, weights = unitary(150, n_colours), torch.rand(150, n_colours, dtype=torch.float64)
    result = interpreted(angles_cuda.eigenangles, U)
    assert_close(result, angles_reference.eigenangles(U), rtol=0, atol=1e-14)
    gradient = interpreted(angles_cuda.angles_gradient, U, weights)
    assert_close(gradient, angles_reference.angles_gradient(U, weights), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_interpreted_map_equals_the_reference(interpreted, unitary, n_colours, inverse):
    from pipeline_kernels.su3.spectral import cuda as spectral_cuda

    # More than one program; of N = 3, where the interpreter takes its time, one.
    n_wide = {2: 130, 3: 7}[n_colours]
    for n, bins, dtype in ((n_wide, 3, torch.complex128), (3, 1, torch.complex64)):
        case = draw_case(unitary, n, n_colours, bins, dtype)
        result = interpreted(spectral_cuda.spectral_map, *case[:2], inverse)
        check(result, spectral_reference.spectral_map(*case[:2], inverse), dtype)
        gradient = interpreted(spectral_cuda.spectral_gradient, *case, inverse)
        check(gradient, spectral_reference.spectral_gradient(*case, inverse), dtype)


@pytest.mark.parametrize("n_colours", COLOURS)
def test_interpreted_kernels_change_nothing_without_parameters(interpreted, unitary, n_colours):
    """And give numbers at the centre of the group, where all angles are equal."""
    from pipeline_kernels.su3.spectral import cuda as spectral_cuda

    one = torch.eye(n_colours, dtype=torch.complex128)
    phase = torch.polar(torch.ones(1), torch.tensor([2 * math.pi / n_colours]))
    U = torch.cat([unitary(5, n_colours), one[None], phase[:, None, None] * one])
    parameters = torch.zeros(7, n_colours - 1, 13, dtype=torch.float64)
    W, log_det = interpreted(spectral_cuda.spectral_map, U, parameters, False)
    assert torch.equal(W, one.expand_as(W))
    assert (log_det == 0).all()
    weights = (torch.ones_like(U), torch.ones(7, dtype=torch.float64))
    for result in interpreted(spectral_cuda.spectral_gradient, U, parameters + 1, *weights, False):
        assert result.isfinite().all()


def test_interpreted_kernels_take_nothing(interpreted):
    from pipeline_kernels.su3.spectral import cuda as spectral_cuda

    nothing = torch.empty(0, 3, 3, dtype=torch.complex64)
    parameters = torch.empty(0, 2, 4, dtype=torch.float64)
    W, log_det = interpreted(spectral_cuda.spectral_map, nothing, parameters, False)
    assert W.shape == (0, 3, 3)
    assert log_det.shape == (0,)


def iterate_kernels(n_colours, dtype):
    """Yield kernels with their signatures and constants."""
    from pipeline_kernels.su3 import matrices_cuda
    from pipeline_kernels.su3.angles import cuda as angles_cuda
    from pipeline_kernels.su3.spectral import cuda as spectral_cuda

    p, d = POINTERS[dtype], "*fp64"
    sizes = {"N": n_colours, "NOISE": 1e-14, "BLOCK": matrices_cuda.BLOCK}
    splines = {**sizes, "BINS": 8, "INVERSE": True}
    for kernel, inputs, results, constants in [
        (angles_cuda._differentiate_angles, (p, d), (p,), sizes),
        (spectral_cuda._map_matrices, (p, d), (p, d), splines),
        (spectral_cuda._differentiate_map, (p, d, p, d), (p, d), splines),
    ]:
        signature = {"inputs": inputs, "results": results, "total": "i32"}
        yield kernel, signature | dict.fromkeys(constants, "constexpr"), constants


@pytest.mark.slow
def test_kernels_compile_for_a_gpu(compiled):
    for case in iterate_kernels(2, torch.complex64):
        assert compiled(90, *case)["cubin"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", POINTERS)
def test_kernels_of_three_colours_are_understood_by_the_compiler(front_end, dtype):
    for case in iterate_kernels(3, dtype):
        assert "tt.store" in front_end(90, *case)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", POINTERS)
@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize("n_colours", COLOURS)
def test_gpu_equals_the_reference(gpu, unitary, n_colours, inverse, dtype):
    L, parameters, by_W, by_log_det = case = draw_case(unitary, 10_001, n_colours, 8, dtype, gpu)
    leaves = [x.clone().requires_grad_() for x in (L, parameters)]
    result = spectral_map(*leaves, inverse)
    expected = spectral_reference.spectral_map(L, parameters, inverse)
    check([x.detach() for x in result], expected, dtype)
    gradient = torch.autograd.grad(result, leaves, (by_W, by_log_det))
    check(gradient, spectral_reference.spectral_gradient(*case, inverse), dtype)
    check([eigenangles(L)], [angles_reference.eigenangles(L)], dtype)
