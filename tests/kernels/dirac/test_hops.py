"""Hops of Dirac's operator: C, and plain PyTorch where there is none.

Oracles: the operator written out hop by hop as a dense matrix, torch's derivatives, gradcheck.
"""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.dirac.dirac_case import draw_links, draw_spinors, write_out_gammas, write_out_hops
from pipeline_kernels.dirac import hop, hop_gradient, join, reference, split
from pipeline_kernels.dirac.geometry import ALL, EVEN, ODD
from pipeline_kernels.dirac.op import combine_hops

DTYPES = [torch.complex64, torch.complex128]
FACTORS = [0.3, -0.7, 1.1, 0.4]
EXTENTS = [(2, 2), (4, 2), (6, 4), (4, 8), (8, 16), (2, 4, 2, 2), (4, 4, 2, 6), (4, 4, 4, 4)]


class Case(NamedTuple):
    """Fields of one lattice, and which hops."""

    seed: int
    extents: tuple[int, ...]
    n_colours: int
    batch: int
    n_rhs: int
    parity: int
    adjoint: bool
    with_other: bool
    boundary: tuple[int, ...]


CASES = st.builds(
    Case,
    seed=st.integers(0, 2**31),
    extents=st.sampled_from(EXTENTS),
    n_colours=st.sampled_from([2, 3]),
    batch=st.sampled_from([0, 1, 2, 5]),
    n_rhs=st.sampled_from([1, 3, 9]),
    parity=st.sampled_from([EVEN, ODD, ALL]),
    adjoint=st.booleans(),
    with_other=st.booleans(),
    boundary=st.tuples(*[st.sampled_from([-1, 1])] * 4),
)


def choose_tolerance(dtype):
    eps = torch.finfo(dtype).eps
    return {"rtol": 50 * eps, "atol": 200 * eps}


@pytest.mark.parametrize("D", [2, 4])
def test_gammas_are_those_of_euclidean_clifford_algebra(D):
    gammas, gamma5 = reference.make_gammas(D, torch.device("cpu"))
    expected, expected5 = write_out_gammas(D)
    assert_close(gammas, torch.stack(expected), rtol=0, atol=0)
    assert_close(torch.diag(gamma5).to(gammas.dtype), expected5, rtol=0, atol=0)
    for mu in range(D):
        for nu in range(D):
            anticommutator = gammas[mu] @ gammas[nu] + gammas[nu] @ gammas[mu]
            assert_close(anticommutator, 2.0 * (mu == nu) * torch.eye(D, dtype=gammas.dtype))
    product = gammas[1]
    for mu in (2, 3) if D == 4 else ():
        product = product @ gammas[mu]
    product = product @ gammas[0]
    assert_close(product if D == 4 else 1j * product, expected5)  # i s2 s1 = s3


@pytest.mark.parametrize("extents", [(2, 2), (4, 2), (2, 2, 2, 2)])
@pytest.mark.parametrize("boundary", [-1, 1])
def test_hops_are_those_of_the_matrix_written_out(implementation, extents, boundary):
    signs = (boundary,) + (1,) * (len(extents) - 1)
    links, psi = draw_links(extents, 3), draw_spinors(extents, 3, n_rhs=2)
    H = write_out_hops(links[0], extents, signs)
    flat = psi.flatten(2)[0]
    for adjoint, matrix in ((False, H), (True, H.mH)):
        result = hop(psi, links, extents, boundary=signs, adjoint=adjoint)
        assert_close(result.flatten(2)[0], flat @ matrix.mT)


@pytest.mark.parametrize("extents", [(4, 2), (2, 4, 2, 2)])
def test_halves_are_those_of_all_sites(implementation, extents):
    links, psi = draw_links(extents, 2, 2), draw_spinors(extents, 2, 2, 3)
    even, odd = split(psi, extents)
    assert_close(join(even, odd, extents), psi)
    halves = hop(odd, links, extents, parity=EVEN), hop(even, links, extents, parity=ODD)
    assert_close(join(*halves, extents), hop(psi, links, extents))


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(case=CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_c_equals_the_reference(compiled_c, dtype, case):
    seed, extents, n_colours, batch, n_rhs, parity, adjoint, with_other, boundary = case
    halved, signs = parity != ALL, boundary[: len(extents)]
    links = draw_links(extents, n_colours, batch, dtype, seed)
    psi, chi = (
        draw_spinors(extents, n_colours, batch, n_rhs, dtype, seed + k, halved) for k in (1, 2)
    )
    exact = [x.to(torch.complex128) for x in (psi, chi, links)]
    tables = [*extents], [*signs]
    others = [x if with_other else None for x in (chi, exact[1])]
    rest = None, FACTORS, *tables, parity, adjoint
    expected = reference.combine_hops(exact[0], others[1], exact[2], *rest)
    result = combine_hops(psi, others[0], links, *rest)
    assert result.dtype == dtype
    assert_close(result.to(torch.complex128), expected, **choose_tolerance(dtype))
    expected = reference.hop_gradient(exact[1], exact[0], *tables, parity, adjoint)
    result = hop_gradient(chi, psi, extents, boundary=signs, parity=parity, adjoint=adjoint)
    assert result.dtype == dtype
    assert_close(result.to(torch.complex128), expected, **choose_tolerance(dtype))


def test_the_gradient_is_that_of_the_matrix_written_out(implementation):
    extents, signs = (2, 4), (-1, 1)
    links = draw_links(extents, 3)[0].requires_grad_()
    chi, psi = (draw_spinors(extents, 3, n_rhs=2, seed=seed) for seed in (1, 2))
    H = write_out_hops(links, extents, signs)
    value = (chi.flatten(2)[0].conj() * (psi.flatten(2)[0] @ H.mT)).sum().real
    (expected,) = torch.autograd.grad(value, links)
    assert_close(hop_gradient(chi, psi, extents)[0], expected)


@pytest.mark.slow
@pytest.mark.parametrize(("parity", "halved"), [(ALL, False), (EVEN, True), (ODD, True)])
def test_derivatives_of_both_orders(compiled_c, parity, halved):
    extents = (2, 2)
    links = draw_links(extents, 2).requires_grad_()
    psi, chi = (draw_spinors(extents, 2, seed=k, halved=halved) for k in (1, 2))

    def combine(psi, chi, links):
        tables = [*extents], [-1, 1]
        return combine_hops(psi, chi, links, None, FACTORS, *tables, parity, False)

    inputs = psi.requires_grad_(), chi.requires_grad_(), links
    assert torch.autograd.gradcheck(combine, inputs)
    assert torch.autograd.gradgradcheck(combine, inputs)
    assert torch.autograd.gradgradcheck(
        lambda chi, psi: hop_gradient(chi, psi, extents, parity=parity, adjoint=True), (chi, psi)
    )


@pytest.mark.parametrize("batch", [1, 9])
def test_threads_give_the_same_bits(compiled_c, use_threads, batch):
    extents = (4, 4, 4, 2)
    links = draw_links(extents, 3, batch, torch.complex64)
    psi, chi = (draw_spinors(extents, 3, batch, 5, torch.complex64, seed) for seed in (1, 2))
    results = []
    for n in (1, 2):
        with use_threads(n):
            results.append((hop(psi, links, extents), hop_gradient(chi, psi, extents)))
    assert all(map(torch.equal, *results))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_processors_with_shorter_vectors_calculate_the_same(use_level, level):
    extents = (4, 2, 4, 4)
    links, psi = draw_links(extents, 3, 2), draw_spinors(extents, 3, 2, 2)
    with use_level(level):
        result = hop(psi, links, extents)
    expected = reference.combine_hops(
        psi, None, links, None, (1, 0, 0, 0), extents, (-1, 1, 1, 1), ALL, False
    )
    assert_close(result, expected)


def test_lazily_conjugated_spinors(implementation):
    extents = (4, 4)
    links, psi = draw_links(extents, 2), draw_spinors(extents, 2)
    expected = hop(psi.conj().resolve_conj(), links, extents)
    assert_close(hop(psi.conj(), links, extents), expected)


@pytest.mark.slow
def test_the_operators_keep_the_rules_of_torch(implementation):
    extents = (2, 2)
    links = draw_links(extents, 2).requires_grad_()
    psi, chi = (draw_spinors(extents, 2, seed=k).requires_grad_() for k in (1, 2))
    operators, tables = torch.ops.pipeline_kernels, ([*extents], [-1, 1])
    arguments = psi, chi, links, None, FACTORS, *tables, ALL, False
    torch.library.opcheck(operators.dirac_combine_hops.default, arguments)
    torch.library.opcheck(operators.dirac_hop_gradient.default, (chi, psi, *tables, ALL, False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x | {"extents": (4, 3)}, "extents: expected 2 or 4 even numbers"),
        (lambda x: x | {"extents": (4, 4, 4)}, "extents: expected 2 or 4 even numbers"),
        (lambda x: x | {"extents": (4, 2)}, r"links: expected \(batch, 2, 8, N, N\)"),
        (lambda x: x | {"boundary": (1, 0)}, "boundary: expected 1 or -1"),
        (lambda x: x | {"psi": x["psi"][0]}, r"psi: expected \(batch, n_rhs, 16, 2, N\)"),
        (lambda x: x | {"parity": ODD}, r"psi: expected \(batch, n_rhs, 8, 2, N\)"),
        (lambda x: x | {"parity": 3}, "parity: expected 0"),
        (lambda x: x | {"psi": x["psi"].real}, "psi: expected one dtype"),
        (lambda x: x | {"psi": x["psi"].to(torch.complex64)}, "psi: expected torch.complex128"),
        (lambda x: x | {"psi": x["psi"].repeat(2, 1, 1, 1, 1)}, "psi: expected a batch of 1"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    extents = (4, 4)
    case = {"psi": draw_spinors(extents, 3), "links": draw_links(extents, 3), "extents": extents}
    with pytest.raises(ValueError, match=message):
        hop(**change(case))
