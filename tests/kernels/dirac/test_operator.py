"""Wilson's operator with a twisted mass, on all sites and on the odd ones.

Oracles: gamma5-hermiticity, gauge covariance, the identity of determinants, differences along the
group, the exact operator of free quarks in momentum space, the critical kappa 1 / (2 D).
"""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from kernels.dirac.dirac_case import draw_links, draw_spinors, write_out_gammas, write_out_hops
from pipeline_kernels.dirac import DiracOperator, join, split
from pipeline_kernels.dirac.reference import make_gammas
from pipeline_kernels.su3 import draw_haar

LATTICES = [((4, 4), 2), ((2, 6), 3), ((4, 2, 2, 4), 2), ((2, 4, 4, 2), 3)]
pytestmark = pytest.mark.usefixtures("implementation")
MASSES = {"kappa": 0.157, "two_kappa_mu": 0.23}


def multiply_gamma5(psi):
    _, gamma5 = make_gammas(psi.shape[-2], psi.device)
    return psi * gamma5[:, None]


def inner(a, b):
    return (a.conj() * b).flatten(2).sum(-1)


def write_out(operator):
    """The operator of one configuration as a dense matrix."""
    H = write_out_hops(operator.links[0], operator.extents, operator.boundary)
    _, gamma5 = write_out_gammas(len(operator.extents))
    N = operator.links.shape[-1]
    one = torch.eye(len(H) // (len(gamma5) * N), dtype=H.dtype)
    chirality = torch.kron(torch.kron(one, gamma5), torch.eye(N, dtype=H.dtype))
    return torch.eye(len(H)) - operator.kappa * H + 1j * operator.two_kappa_mu * chirality


@pytest.mark.parametrize(("extents", "n_colours"), LATTICES)
def test_adjoints_and_gamma5_hermiticity(extents, n_colours):
    links = draw_links(extents, n_colours, 2)
    operator = DiracOperator(links, extents, **MASSES)
    flavour = operator.with_mass(-operator.two_kappa_mu)
    psi, chi = (draw_spinors(extents, n_colours, 2, 3, seed=k) for k in (1, 2))
    assert_close(inner(chi, operator.apply(psi)), inner(operator.apply(chi, adjoint=True), psi))
    turned = multiply_gamma5(operator.apply(multiply_gamma5(psi)))
    assert_close(turned, flavour.apply(psi, adjoint=True))
    psi, chi = split(psi, extents)[1], split(chi, extents)[1]
    left = inner(chi, operator.apply_even_odd(psi))
    assert_close(left, inner(operator.apply_even_odd(chi, adjoint=True), psi))
    turned = multiply_gamma5(operator.apply_even_odd(multiply_gamma5(psi)))
    assert_close(turned, flavour.apply_even_odd(psi, adjoint=True))


@pytest.mark.parametrize(("extents", "n_colours"), LATTICES)
def test_gauge_covariance(extents, n_colours):
    links, psi = draw_links(extents, n_colours), draw_spinors(extents, n_colours)
    gauge = draw_haar(links.shape[2], n_colours, torch.Generator().manual_seed(3), links.dtype)
    sites = torch.arange(len(gauge)).reshape(extents)
    ends = torch.stack([gauge[sites.roll(-1, mu).flatten()] for mu in range(len(extents))])
    turned = gauge @ links @ ends.mH

    def turn(psi):
        return torch.einsum("xij,brxsj->brxsi", gauge, psi)

    plain = DiracOperator(links, extents, **MASSES).apply(psi)
    assert_close(DiracOperator(turned, extents, **MASSES).apply(turn(psi)), turn(plain))


@pytest.mark.parametrize("boundary", [-1, 1])
@pytest.mark.parametrize(("extents", "n_colours"), [((4, 2), 2), ((2, 2), 3), ((2, 2, 2, 2), 2)])
def test_the_identity_of_determinants(extents, n_colours, boundary):
    signs = (boundary,) + (1,) * (len(extents) - 1)
    operator = DiracOperator(draw_links(extents, n_colours), extents, **MASSES, boundary=signs)
    M, S = write_out(operator), len(extents)
    n = len(M) // 2
    units = torch.eye(n, dtype=M.dtype).reshape(1, n, -1, S, n_colours)
    Mhat = operator.apply_even_odd(units)[0].flatten(1).mT
    sign, value = torch.linalg.slogdet(M)
    sign_hat, value_hat = torch.linalg.slogdet(Mhat)
    diagonal = n_colours * S * math.prod(extents) / 4 * math.log1p(operator.two_kappa_mu**2)
    assert_close(value, value_hat + diagonal, rtol=1e-12, atol=1e-12)
    assert_close(sign, sign_hat)
    psi = draw_spinors(extents, n_colours)
    for adjoint, matrix in ((False, M), (True, M.mH)):
        assert_close(operator.apply(psi, adjoint=adjoint).flatten(), matrix @ psi.flatten())


@pytest.mark.parametrize(("extents", "n_colours"), LATTICES)
@pytest.mark.parametrize("form", ["all", "odd"])
def test_derivatives_by_links_are_those_of_differences(extents, n_colours, form):
    links = draw_links(extents, n_colours, 2)
    psi, chi = (draw_spinors(extents, n_colours, 2, 2, seed=k) for k in (1, 2))
    if form == "odd":
        psi, chi = split(psi, extents)[1], split(chi, extents)[1]
    X = torch.randn(links.shape, generator=torch.Generator().manual_seed(4), dtype=links.dtype)
    X = (X - X.mH) / 2

    def apply(links):
        operator = DiracOperator(links, extents, **MASSES)
        return operator.apply(psi) if form == "all" else operator.apply_even_odd(psi)

    def value(t):
        image = apply(torch.linalg.matrix_exp(t * X) @ links)
        return inner(chi, image).sum(1).real

    h = 2e-3
    slope = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    leaf = links.clone().requires_grad_()
    (G,) = torch.autograd.grad(inner(chi, apply(leaf)).sum().real, leaf)
    assert_close(inner(G, X @ links).flatten(1).sum(1).real, slope, rtol=1e-8, atol=0)
    if form == "odd":
        operator = DiracOperator(links, extents, **MASSES)
        assert_close(operator.differentiate_even_odd(chi, psi), G)


@pytest.mark.parametrize("boundary", [-1, 1])
@pytest.mark.parametrize("extents", [(6, 4), (4, 2, 4, 6)])
def test_free_quarks_in_momentum_space(extents, boundary):
    """M(p) = 1 - 2 kappa sum_mu (cos p_mu - i gamma_mu sin p_mu) + i mu~ gamma5."""
    D, V = len(extents), math.prod(extents)
    signs = (boundary,) + (1,) * (D - 1)
    links = torch.eye(2, dtype=torch.complex128).expand(1, D, V, 2, 2)
    operator = DiracOperator(links, extents, **MASSES, boundary=signs)
    gammas, gamma5 = write_out_gammas(D)
    axes = [
        2 * math.pi * (torch.arange(n).double() + (0.5 if sign == -1 else 0)) / n
        for n, sign in zip(extents, signs, strict=True)
    ]
    momenta = torch.cartesian_prod(*axes)  # (V, D)
    places = torch.tensor(list(itertools.product(*map(range, extents)))).double()
    waves = torch.polar(torch.ones(V, V).double(), places @ momenta.mT)  # (site, momentum)
    spinors = draw_spinors(extents, 2)[0, 0]  # (momentum, S, N)
    psi = torch.einsum("xp,psi->pxsi", waves, spinors)[None]
    M = torch.eye(D, dtype=torch.complex128) + 1j * operator.two_kappa_mu * gamma5
    M = M - 2 * operator.kappa * sum(
        p.cos()[:, None, None] * torch.eye(D) - 1j * p.sin()[:, None, None] * gamma
        for p, gamma in zip(momenta.mT, gammas, strict=True)
    )
    expected = torch.einsum("xp,pst,pti->pxsi", waves, M, spinors)[None]
    assert_close(operator.apply(psi), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("extents", [(4, 4), (4, 4, 4, 4)])
def test_massless_free_quarks_have_the_critical_kappa(extents):
    """1/8 in four dimensions: Gattringer and Lang, Quantum Chromodynamics on the Lattice, 5.1."""
    D, V = len(extents), math.prod(extents)
    links = torch.eye(3, dtype=torch.complex64).expand(1, D, V, 3, 3)
    operator = DiracOperator(links, extents, kappa=1 / (2 * D), boundary=(1,) * D)
    constant = torch.ones(1, 1, V, D, 3, dtype=torch.complex64)
    assert_close(operator.apply(constant), torch.zeros_like(constant))


def test_other_masses_types_and_links_that_require_derivatives():
    extents = (4, 4)
    links, psi = draw_links(extents, 3), draw_spinors(extents, 3)
    operator = DiracOperator(links, extents, **MASSES)
    other = operator.with_mass(0.0)
    assert (operator.two_kappa_mu, other.two_kappa_mu) == (0.23, 0.0)
    assert_close(other.apply(psi), DiracOperator(links, extents, operator.kappa).apply(psi))
    single = operator.convert(torch.complex64)
    result = single.apply(psi.to(torch.complex64))
    assert_close(result.to(psi.dtype), operator.apply(psi), rtol=1e-5, atol=1e-5)
    even, odd = split(psi, extents)
    turned = operator.invert_diagonal(even)
    assert_close(turned + 0.23j * multiply_gamma5(turned), even)
    assert_close(join(even, odd, extents), psi)
    with pytest.raises(ValueError, match=r"chi: expected \(\d, n_rhs, 8, 2, 3\)"):
        operator.differentiate_even_odd(psi, odd)


@pytest.mark.gpu
def test_an_operator_on_a_gpu(gpu):
    extents = (4, 4, 2, 2)
    links, psi = draw_links(extents, 3), draw_spinors(extents, 3)
    operators = [DiracOperator(x, extents, 0.15, 0.1) for x in (links, links.to(gpu))]
    assert_close(operators[1].apply(psi.to(gpu)).cpu(), operators[0].apply(psi))
