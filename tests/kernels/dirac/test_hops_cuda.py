"""Hops by Triton: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: the formula in plain PyTorch (`reference`).
"""

import pytest
import torch
from torch.testing import assert_close

from kernels.dirac.dirac_case import draw_links, draw_spinors
from pipeline_kernels.dirac import DiracOperator, reference
from pipeline_kernels.dirac.geometry import ALL, EVEN, ODD

LIMITS = {torch.complex64: 1e-5, torch.complex128: 1e-13}
FACTORS = [0.3, -0.7, 1.1, 0.4]
CASES = [
    ((2, 4), 2, 2, 3, torch.complex64, ALL, False),
    ((2, 4), 3, 1, 1, torch.complex128, ODD, True),
    ((2, 2, 2, 2), 3, 1, 2, torch.complex128, EVEN, False),
    ((12, 12), 2, 1, 1, torch.complex128, ALL, True),  # more sites than a program takes
]


def make_case(extents, n_colours, batch, n_rhs, dtype, parity, adjoint):
    """Spinors, others, links and what else both functions take."""
    halved = parity != ALL
    psi, chi = (
        draw_spinors(extents, n_colours, batch, n_rhs, dtype, seed, halved) for seed in (1, 2)
    )
    links = draw_links(extents, n_colours, batch, dtype)
    boundary = [-1] + [1] * (len(extents) - 1)
    return psi, chi, links, [[*extents], boundary], [parity, adjoint]


def close(result, expected):
    scale = float(expected.abs().max())
    assert result.dtype == expected.dtype
    assert_close(result / scale, expected / scale, rtol=0, atol=LIMITS[expected.dtype])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_interpreted_kernels_equal_the_reference(interpreted, case):
    from pipeline_kernels.dirac import cuda

    psi, chi, links, tables, where = make_case(*case)
    for other in (chi, None):
        arguments = psi, other, links, None, FACTORS, *tables, *where
        close(interpreted(cuda.combine_hops, *arguments), reference.combine_hops(*arguments))
    arguments = chi, psi, *tables, *where
    close(interpreted(cuda.hop_gradient, *arguments), reference.hop_gradient(*arguments))


def iterate_kernels(pointer, D, n_colours):
    """Yield kernels with their signatures and constants."""
    from pipeline_kernels.dirac import cuda

    common = {"D": D, "N": n_colours, "ADJOINT": 0, "HALVED": 1}
    for kernel, n_arrays, tables, n_sizes, own in (
        (cuda._hop, 4, ("*i64", "*i64", "*i64", pointer), 3, {"HAS_OTHER": 1}),
        (cuda._differentiate_links, 3, ("*i64", "*i64"), 4, {"ENDS": 3}),
    ):
        constants = common | own
        signature = {
            "arrays": (pointer,) * n_arrays,
            "tables": tables,
            "sizes": ("i32",) * n_sizes,
        } | dict.fromkeys(constants, "constexpr")
        yield kernel, signature, constants


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
@pytest.mark.parametrize("case", [*CASES, ((4, 4, 4, 8), 3, 2, 3, torch.complex128, ALL, False)])
def test_gpu_equals_the_reference(gpu, case):
    psi, chi, links, tables, where = make_case(*case)
    there = [x.to(gpu) for x in (psi, chi, links)]
    from pipeline_kernels.dirac import cuda

    result = cuda.combine_hops(*there, None, FACTORS, *tables, *where)
    close(result.cpu(), reference.combine_hops(psi, chi, links, None, FACTORS, *tables, *where))
    result = cuda.hop_gradient(there[1], there[0], *tables, *where)
    close(result.cpu(), reference.hop_gradient(chi, psi, *tables, *where))


@pytest.mark.gpu
def test_an_operator_on_a_gpu(gpu):
    extents = (4, 4, 2, 2)
    links, psi = draw_links(extents, 3), draw_spinors(extents, 3)
    operators = [DiracOperator(x, extents, 0.15, 0.1) for x in (links, links.to(gpu))]
    assert_close(operators[1].apply(psi.to(gpu)).cpu(), operators[0].apply(psi))
