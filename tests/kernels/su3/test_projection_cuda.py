"""Projection by Triton: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: the singular value decomposition and the formula in plain PyTorch (`reference`).
"""

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.su3 import polar
from pipeline_kernels.su3.projection import reference

LIMITS = {torch.complex64: 3e-7, torch.complex128: 1e-12}
CASES = [(2, torch.complex64), (2, torch.complex128), (3, torch.complex64), (3, torch.complex128)]


def make_case(n, n_colours, dtype, unitary):
    """Random matrices, unitary ones and nearly singular ones; derivatives by the result."""
    generator = torch.Generator().manual_seed(n)
    shape = (2, n, n_colours, n_colours)
    M, G = torch.randn(*shape, generator=generator, dtype=torch.complex128).to(dtype)
    M[: n // 4] = unitary(n // 4, n_colours).to(dtype)
    M[n // 4 : n // 2, 0] *= 1e-2
    return M, G


def close(result, expected, dtype):
    scale = expected.abs().amax((1, 2), keepdim=True).clamp(min=1)
    assert result.dtype == dtype
    assert_close(result / scale, expected / scale, rtol=0, atol=LIMITS[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(("n_colours", "dtype"), CASES)
def test_interpreted_kernels_equal_the_reference(interpreted, unitary, n_colours, dtype, special):
    from pipeline_kernels.su3.projection import cuda

    M, G = make_case(131, n_colours, dtype, unitary)
    W = interpreted(cuda.polar, M, special)
    close(W, reference.polar(M, special), dtype)
    result = interpreted(cuda.polar_gradient, M, W, G, special)
    close(result, reference.polar_gradient(M, W, G, special), dtype)
    assert interpreted(cuda.polar, M[:0], special).shape == M[:0].shape


def iterate_kernels(pointer, n_colours):
    """Yield kernels with their signatures and constants."""
    from pipeline_kernels.su3 import matrices_cuda
    from pipeline_kernels.su3.projection import cuda

    constants = {"N": n_colours, "SPECIAL": True, "BLOCK": matrices_cuda.BLOCK}
    for kernel, n_inputs in ((cuda._project, 1), (cuda._differentiate_polar, 3)):
        signature = {"inputs": (pointer,) * n_inputs, "results": (pointer,), "total": "i64"}
        yield kernel, signature | dict.fromkeys(constants, "constexpr"), constants


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "pointer"), [(80, "*fp64"), (90, "*fp32")])
def test_kernels_compile_for_a_gpu(compiled, capability, pointer):
    for case in iterate_kernels(pointer, 2):
        assert compiled(capability, *case)["cubin"]


@pytest.mark.slow
@pytest.mark.parametrize("pointer", ["*fp32", "*fp64"])
def test_kernels_of_three_colours_are_understood_by_the_compiler(front_end, pointer):
    for case in iterate_kernels(pointer, 3):
        assert "tt.store" in front_end(90, *case)


@pytest.mark.gpu
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(("n_colours", "dtype"), CASES)
def test_gpu_equals_the_reference(gpu, unitary, n_colours, dtype, special):
    from pipeline_kernels.su3.projection.op import _gradient, _polar

    M, G = make_case(10_001, n_colours, dtype, unitary)
    W = _polar(M.to(gpu), special)
    close(W.cpu(), reference.polar(M, special), dtype)
    result = _gradient(M.to(gpu), W, G.to(gpu), special)
    close(result.cpu(), reference.polar_gradient(M, W.cpu(), G, special), dtype)


@pytest.mark.gpu
def test_gpu_has_second_derivatives(gpu, unitary):
    M, _ = make_case(3, 3, torch.complex128, unitary)
    assert torch.autograd.gradgradcheck(polar, (M.to(gpu).requires_grad_(),), fast_mode=True)
