"""Products along paths: C, Triton by its interpreter and compiler, and on a GPU.

Oracles: torch.linalg.multi_dot path by path, torch's own derivatives of it, gradgradcheck.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pipeline_kernels.su3 import path_products
from pipeline_kernels.su3.paths import reference

DTYPES = [torch.complex64, torch.complex128]
CASES = {
    "seed": st.integers(0, 2**32),
    "batch": st.integers(0, 5),
    "n_links": st.integers(1, 9),
    "shape": st.tuples(st.integers(1, 5), st.integers(0, 40), st.integers(1, 4)),
    "n_colours": st.sampled_from([2, 3]),
}


def draw_case(seed, batch, n_links, shape, n_colours, dtype):
    generator = torch.Generator().manual_seed(seed)
    size = batch, n_links, n_colours, n_colours
    links = torch.randn(*size, dtype=torch.complex128, generator=generator).to(dtype)
    table = torch.randint(n_links, shape, generator=generator)
    adjoint = torch.rand(shape[0], shape[2], generator=generator) < 0.5
    return links, table, adjoint


def multiply_one_by_one(links, table, adjoint):
    out = links.new_empty(len(links), *table.shape[1:], *links.shape[2:])
    for b in range(len(links)):
        for a in range(table.shape[1]):
            for p in range(table.shape[2]):
                factors = [links[b, number] for number in table[:, a, p]]
                factors = [
                    f.mH if back else f for f, back in zip(factors, adjoint[:, p], strict=True)
                ]
                out[b, a, p] = torch.linalg.multi_dot(factors) if len(factors) > 1 else factors[0]
    return out


def choose_tolerance(dtype):
    eps = torch.finfo(dtype).eps
    return {"rtol": 50 * eps, "atol": 500 * eps}


@settings(deadline=None, max_examples=30)
@given(**CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_and_derivatives_of_random_tables(
    compiled_c, dtype, seed, batch, n_links, shape, n_colours
):
    links, table, adjoint = draw_case(seed, batch, n_links, shape, n_colours, dtype)
    exact = links.to(torch.complex128).requires_grad_()
    expected = reference.path_products(exact, table, adjoint)
    actual = path_products(links.requires_grad_(), table, adjoint)
    assert actual.dtype == dtype
    assert_close(actual.to(torch.complex128), expected, **choose_tolerance(dtype))
    by = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad(expected, exact, by)
    (ours,) = torch.autograd.grad(actual, links, by.to(dtype))
    assert_close(ours.to(torch.complex128), gradient, **choose_tolerance(dtype))


def test_the_reference_multiplies_path_by_path():
    links, table, adjoint = draw_case(0, 2, 6, (4, 3, 5), 3, torch.complex128)
    exact = links.clone().requires_grad_()
    expected = multiply_one_by_one(exact, table, adjoint)
    assert_close(reference.path_products(links, table, adjoint), expected.detach())
    by = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad(expected, exact, by)
    assert_close(reference.path_gradient(links, by, table, adjoint), gradient)


@pytest.mark.slow
@pytest.mark.parametrize("n_colours", [2, 3])
def test_derivatives_of_both_orders(n_colours):
    links, table, adjoint = draw_case(1, 2, 3, (3, 2, 2), n_colours, torch.complex128)
    links.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: path_products(x, table, adjoint), links)
    assert torch.autograd.gradgradcheck(lambda x: path_products(x, table, adjoint), links)


def test_threads_give_the_same_bits(compiled_c, use_threads):
    links, table, adjoint = draw_case(2, 70, 8, (3, 37, 4), 3, torch.complex64)
    by, results = torch.randn(70, 37, 4, 3, 3, dtype=torch.complex64), []
    for n in (1, 2):
        with use_threads(n):
            x = links.clone().requires_grad_()
            out = path_products(x, table, adjoint)
            results.append((out, *torch.autograd.grad(out, x, by)))
    assert all(map(torch.equal, *results))


def test_lazily_conjugated_links():
    links, table, adjoint = draw_case(3, 2, 4, (3, 2, 2), 3, torch.complex128)
    expected = path_products(links.conj().resolve_conj(), table, adjoint)
    assert_close(path_products(links.conj(), table, adjoint), expected)
    strided = links.transpose(0, 1).contiguous().transpose(0, 1)
    assert_close(path_products(strided, table, adjoint), path_products(links, table, adjoint))


def test_the_operator_keeps_the_rules_of_torch(implementation):
    links, table, adjoint = draw_case(4, 2, 4, (3, 2, 2), 3, torch.complex128)
    operator = torch.ops.pipeline_kernels.su3_path_products.default
    torch.library.opcheck(operator, (links.requires_grad_(), table, adjoint))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, t, a: (x[0], t, a), r"links: expected \(batch, n_links, N, N\)"),
        (lambda x, t, a: (x.real, t, a), "links: expected one dtype"),
        (lambda x, t, a: (x, t[0], a), r"table: expected int64 \(length, n_places, n_paths\)"),
        (lambda x, t, a: (x, t[:0], a[:0]), "with a length above 0"),
        (lambda x, t, a: (x, t, a[:, :1]), r"adjoint: expected bool \(3, 2\)"),
        (lambda x, t, a: (x, t, a.long()), "adjoint: expected bool"),
        (lambda x, t, a: (x, t + 2, a), "table: expected numbers of 4 links"),
        (lambda x, t, a: (x, t - 4, a), "table: expected numbers of 4 links"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    case = draw_case(5, 2, 4, (3, 2, 2), 3, torch.complex128)
    with pytest.raises(ValueError, match=message):
        path_products(*change(*case))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "n_links", "shape", "n_colours"),
    [
        (65, 2, (2, 1, 2), 3),  # more samples than a program takes
        (3, 2, (4, 1, 1), 3),
        (3, 3, (3, 2, 2), 2),
        (2, 3, (1, 3, 2), 2),
        (2, 2, (2, 0, 1), 2),
        (0, 2, (2, 1, 1), 2),
    ],
)
def test_interpreted_kernels_equal_the_reference(
    interpreted, dtype, batch, n_links, shape, n_colours
):
    from pipeline_kernels.su3.paths import cuda

    links, table, adjoint = draw_case(0, batch, n_links, shape, n_colours, dtype)
    exact = links.to(torch.complex128)
    expected = reference.path_products(exact, table, adjoint)
    result = interpreted(cuda.path_products, links, table, adjoint)
    assert_close(result.to(torch.complex128), expected, **choose_tolerance(dtype))
    by = torch.randn_like(expected)
    gradient = reference.path_gradient(exact, by, table, adjoint)
    ours = interpreted(cuda.path_gradient, links, by.to(dtype), table, adjoint)
    assert_close(ours.to(torch.complex128), gradient, **choose_tolerance(dtype))


def iterate_kernels(real, n_colours):
    """Yield kernels with their signatures and constants."""
    from pipeline_kernels.su3.paths import cuda

    constants = {"LENGTH": 3, "N": n_colours, "BLOCK": cuda.BLOCK}
    sizes = {"sizes": ("i64",) * 4, **dict.fromkeys(constants, "constexpr")}
    for kernel, arrays, n_tables in (
        (cuda._multiply_path, ["links", "out"], 1),
        (cuda._differentiate_link, ["links", "by", "out"], 3),
    ):
        plan = ("*i64", "*i8", "*i64", "*i64")[: n_tables + 1]
        yield kernel, {**dict.fromkeys(arrays, f"*{real}"), "plan": plan, **sizes}, constants


@pytest.mark.slow
def test_kernels_compile_for_a_gpu(compiled):
    for case in iterate_kernels("fp32", 2):
        assert compiled(90, *case)["cubin"]


@pytest.mark.parametrize("real", ["fp32", "fp64"])
def test_kernels_of_three_colours_are_understood_by_the_compiler(front_end, real):
    for case in iterate_kernels(real, 3):
        assert "tt.store" in front_end(90, *case)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_gives_the_same(gpu, dtype):
    links, table, adjoint = draw_case(6, 100, 12, (3, 7, 6), 3, dtype)
    there = links.to(gpu).requires_grad_()
    actual = path_products(there, table.to(gpu), adjoint.to(gpu))
    expected = reference.path_products(links, table, adjoint)
    assert_close(actual.cpu(), expected, **choose_tolerance(dtype))
    by = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad(actual, there, by.to(gpu))
    assert_close(
        gradient.cpu(),
        reference.path_gradient(links, by, table, adjoint),
        **choose_tolerance(dtype),
    )
