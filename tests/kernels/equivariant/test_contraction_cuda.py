"""The Triton kernels: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: automatic differentiation of the formula in plain PyTorch (`reference.value`), in float64.
"""

import pytest
import torch

from pipeline_kernels.equivariant.clebsch_gordan import Irrep
from pipeline_kernels.equivariant.contraction import (
    AtomsByElement,
    Polynomial,
    contract,
    plan,
    reference,
)
from pipeline_kernels.equivariant.contraction.tables import Tables

DTYPES = [torch.float32, torch.float64]


def build_polynomial(inputs, outputs, correlation):
    of, to = (tuple(map(Irrep.parse, names.split("+"))) for names in (inputs, outputs))
    return Polynomial(of, to, correlation)


MODEL = build_polynomial("0e+1o+2e+3o", "0e+1o", 3)
SMALL = build_polynomial("1o", "1o", 3)
PAIRS = build_polynomial("0e+1o", "0e+1o", 2)
NORM = build_polynomial("1o", "0e", 2)


def draw_case(of, element, n_channels, dtype, device="cpu"):
    """Features, coefficients, weights, a direction; then the atoms."""
    generator = torch.Generator().manual_seed(0)
    atoms = AtomsByElement.of(torch.as_tensor(element, device=device))
    n_atoms = len(element)
    sizes = [
        (n_atoms, of.n_inputs, n_channels),
        (len(atoms.elements), of.n_terms, n_channels),
        (n_atoms, of.n_outputs, n_channels),
        (n_atoms, of.n_inputs, n_channels),
    ]
    tensors = [torch.randn(s, generator=generator, dtype=dtype).to(device) for s in sizes]
    return tensors, (atoms.order, atoms.chunks, of.make_code(torch.device(device)), of.sizes)


def evaluate_exactly(tensors, tail):
    """Value, derivatives by features and coefficients, and the changes of all three."""
    x, c, g, u = (t.double().detach().requires_grad_() for t in tensors)
    rows = reference.find_rows(*tail[:2])
    value = reference.value(x, c, rows, Tables.of(*tail[2:]))
    by_x, by_c = torch.autograd.grad(value, (x, c), g, create_graph=True)
    changes = torch.autograd.grad(by_x, (g, x, c), u, materialize_grads=True)
    return [t.detach() for t in (value, by_x, by_c, *changes)]


def check(ours, tensors, tail):
    """Measure errors by the sum of magnitudes, which is how roundings add up."""
    tolerance = 64 * torch.finfo(tensors[0].dtype).eps  # 8e-6 or 1e-14
    sizes = evaluate_exactly([t.abs() for t in tensors], tail)
    for result, value, size in zip(ours, evaluate_exactly(tensors, tail), sizes, strict=True):
        assert result.shape == value.shape
        assert result.dtype == tensors[0].dtype
        assert ((result - value).abs() <= tolerance * size).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "element", "n_channels", "dtype"),
    [
        (SMALL, [1, 0, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1], 17, torch.float32),
        (NORM, [0] * (plan.CHUNK + 1) + [2], 2, torch.float64),
        (PAIRS, [0, 2, 2], 65, torch.float64),
        (PAIRS, [], 4, torch.float32),
    ],
)
def test_interpreted_kernels_equal_the_reference(interpreted, of, element, n_channels, dtype):
    from pipeline_kernels.equivariant.contraction import cuda

    tensors, tail = draw_case(of, torch.tensor(element, dtype=torch.int64), n_channels, dtype)
    x, c, g, u = tensors
    g = g.mT.contiguous().mT
    ours = [
        interpreted(cuda.value, x, c, *tail),
        interpreted(cuda.by_features, x, c, g, *tail),
        interpreted(cuda.by_coefficients, x, g, len(c), *tail),
        *interpreted(cuda.tangents, x, c, g, u, *tail),
    ]
    check(ours, tensors, tail)


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "dtype"), [(80, torch.float64), (90, torch.float32)])
def test_kernels_compile_for_a_gpu(compiled, capability, dtype):
    from pipeline_kernels.equivariant.contraction import cuda

    p = {torch.float32: "*fp32", torch.float64: "*fp64"}[dtype]
    for kernel, n_arrays in [
        (cuda._sum_outputs, 4),
        (cuda._differentiate_inputs, 5),
        (cuda._differentiate_coefficients, 4),
    ]:
        for direction in (p, "constexpr"):
            signature = {
                "arrays": (p, direction, *[p] * (n_arrays - 2)),
                "atoms": ("*i64", "*i64"),
                "tables": ("*i32",) * 4,
                "sizes": ("i32",) * 4,
                "ATOMS": "constexpr",
                "WIDTH": "constexpr",
            }
            constants = {"ATOMS": cuda.ATOMS, "WIDTH": 64}
            if direction == "constexpr":
                constants[0, 1] = None
            assert compiled(capability, kernel, signature, constants)["cubin"]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_atoms", [1, 405, 3000])
def test_gpu_equals_the_reference_and_repeats_every_bit(gpu, n_atoms, dtype):
    element = torch.arange(n_atoms) % 7 // 3
    tensors, tail = draw_case(MODEL, element, 24, dtype, gpu)
    x, c, g, u = tensors
    atoms = AtomsByElement.of(element.to(gpu))

    def results():
        x_, c_, g_ = (t.clone().requires_grad_() for t in (x, c, g))
        value = contract(x_, c_, MODEL, atoms)
        by_x, by_c = torch.autograd.grad(value, (x_, c_), g_, create_graph=True)
        return [value, by_x, by_c, *torch.autograd.grad(by_x, (g_, x_, c_), u)]

    first = [t.detach() for t in results()]
    check(first, tensors, tail)
    assert all(torch.equal(a, b) for a, b in zip(first, results(), strict=True))
