"""Exponential and logarithm by Triton: interpreted, compiled without a GPU, and on a GPU.

Oracle: torch.linalg.matrix_exp, projectors to eigenspaces (`reference`).
"""

from importlib import import_module

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.su3.exponential import reference
from pipeline_kernels.su3.logarithm import reference as logarithm_reference

LIMITS = {torch.complex64: 1e-6, torch.complex128: 1e-12}
CASES = [(2, torch.complex64), (2, torch.complex128), (3, torch.complex64), (3, torch.complex128)]
SCALES = [0, 1e-6, 0.4, 2]


def make_case(n, n_colours, scale, dtype):
    """Matrices of which the first have equal eigenvalues, and derivatives by the result."""
    generator = torch.Generator().manual_seed(3)
    shape = (2, n, n_colours, n_colours)
    A, G = torch.randn(*shape, generator=generator, dtype=torch.complex128)
    A[:3] = torch.diag_embed(1j * torch.tensor([1, 1, -2][:n_colours], dtype=torch.float64))
    return (scale * A).to(dtype), G.to(dtype)


def check(call, device, n, n_colours, scale, dtype):
    """Compares the four routines with the reference, `call` being how they are called."""
    A, G = make_case(n, n_colours, scale, dtype)
    U = reference.exponential(A)
    L = logarithm_reference.logarithm(U)
    # Near the cut a derivative is as large as the distance is small.
    derivative = logarithm_reference.logarithm_gradient(U, L, G)
    limit = LIMITS[dtype] * max(1, float(derivative.abs().max())) ** 2
    for name, arguments, expected in [
        ("exponential", (A,), U),
        ("exponential_gradient", (A, G), reference.exponential_gradient(A, G)),
        ("logarithm", (U,), L),
        ("logarithm_gradient", (U, L, G), derivative),
    ]:
        result = call(name, *(x.to(device) for x in arguments))
        assert result.dtype == dtype
        assert_close(result.cpu(), expected, rtol=0, atol=limit)


def import_module_of(name):
    """Import the module that has a routine, and Triton with it."""
    family = "logarithm" if "logarithm" in name else "exponential"
    return import_module(f"pipeline_kernels.su3.{family}.cuda")


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("n_colours", "dtype"), CASES)
def test_interpreted_kernels_equal_the_reference(interpreted, n_colours, dtype, scale):
    def call(name, *arguments):
        return interpreted(getattr(import_module_of(name), name), *arguments)

    check(call, "cpu", 20, n_colours, scale, dtype)


KERNELS = {  # with the number of inputs
    "_exponentiate": 1,
    "_differentiate_exponential": 2,
    "_take_logarithm": 1,
    "_differentiate_logarithm": 3,
}


def find_kernel(name, pointer, n_colours):
    """Return a kernel with its signature and constants."""
    from pipeline_kernels.su3 import matrices_cuda

    kernel, constants = getattr(import_module_of(name), name), {"N": n_colours}
    constants["BLOCK"] = matrices_cuda.BLOCK
    inputs, results = (pointer,) * KERNELS[name], (pointer,)
    signature = {"inputs": inputs, "results": results, "total": "i64"}
    return kernel, signature | dict.fromkeys(constants, "constexpr"), constants


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_for_a_gpu(compiled, name):
    assert compiled(90, *find_kernel(name, "*fp64", 2))["cubin"]


@pytest.mark.slow
@pytest.mark.parametrize("pointer", ["*fp32", "*fp64"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_three_colours_are_understood_by_the_compiler(front_end, name, pointer):
    assert "tt.store" in front_end(90, *find_kernel(name, pointer, 3))


@pytest.mark.gpu
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("n_colours", "dtype"), CASES)
def test_gpu_equals_the_reference(gpu, n_colours, dtype, scale):
    def call(name, *arguments):
        return getattr(torch.ops.pipeline_kernels, f"su3_{name}")(*arguments)

    check(call, gpu, 1000, n_colours, scale, dtype)
