"""The residual step by Triton: interpreted, compiled without a GPU, and on a GPU.

Oracle: plain PyTorch (the reference), whose tests have oracles from elsewhere.
"""

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.su3 import residual_step
from pipeline_kernels.su3.residual import reference

COLOURS = [2, 3]
DIRECTIONS = [False, True]
POINTERS = {torch.complex64: "*fp32", torch.complex128: "*fp64"}
EXACT = {torch.complex64: 1e-4, torch.complex128: 1e-10}


def draw_case(unitary, n, n_colours, dtype, device="cpu"):
    """Links, paths and weights, then derivatives by both results."""
    generator = torch.Generator().manual_seed(n)
    paths = unitary(3 * n, n_colours, 1).view(n, 3, n_colours, n_colours)
    weights = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    weights = 0.9 * weights / weights.abs().sum(1, keepdim=True)
    by_moved = torch.randn(n, n_colours, n_colours, generator=generator, dtype=dtype)
    by_log_det = torch.randn(n, generator=generator, dtype=torch.float64)
    case = (unitary(n, n_colours).to(dtype), paths.to(dtype), weights, by_moved, by_log_det)
    return [x.to(device) for x in case]


def check(result, expected, dtype):
    for ours, theirs in zip(result, expected, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        assert ours.dtype == theirs.dtype
        assert_close(ours, theirs, rtol=EXACT[dtype], atol=EXACT[dtype] * scale)


@pytest.mark.slow
@pytest.mark.parametrize("inverse", DIRECTIONS)
@pytest.mark.parametrize(("n_colours", "dtype"), [*zip(COLOURS, POINTERS, strict=True)])
def test_interpreted_step_equals_the_reference(interpreted, unitary, n_colours, dtype, inverse):
    from pipeline_kernels.su3.residual import cuda

    *inputs, by_moved, by_log_det = draw_case(unitary, {2: 19, 3: 5}[n_colours], n_colours, dtype)
    expected = reference.residual_step(*inputs, inverse)
    check(interpreted(cuda.residual_step, *inputs, inverse), expected, dtype)
    given = (*inputs, expected[0], by_moved, by_log_det, inverse)
    gradient = interpreted(cuda.residual_gradient, *given)
    check(gradient, reference.residual_gradient(*given), dtype)


def iterate_kernels(n_colours, dtype):
    """Yield kernels with their signatures and constants."""
    from pipeline_kernels.su3.residual import cuda

    p, d = POINTERS[dtype], "*fp64"
    constants = {"N": n_colours, "INVERSE": True, "BLOCK": cuda.BLOCK}
    for kernel, inputs, results in [
        (cuda._move_links, (p, p, d), (p, d)),
        (cuda._differentiate_step, (p, p, d, p, p, d), (p, p, d)),
    ]:
        signature = {"inputs": inputs, "results": results, "tables": (d, d)}
        signature |= {"total": "i32", "n_paths": "i32"}
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
    *inputs, by_moved, by_log_det = draw_case(unitary, 1001, n_colours, dtype, gpu)
    leaves = [x.clone().requires_grad_() for x in inputs]
    result = residual_step(*leaves, inverse)
    expected = reference.residual_step(*inputs, inverse)
    check([x.detach() for x in result], expected, dtype)
    gradient = torch.autograd.grad(result, leaves, (by_moved, by_log_det))
    given = (*inputs, expected[0], by_moved, by_log_det, inverse)
    check(gradient, reference.residual_gradient(*given), dtype)
