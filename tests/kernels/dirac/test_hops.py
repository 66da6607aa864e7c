"""Hops of Dirac's operator: C, and plain PyTorch where there is none.

Oracles: torch's derivatives, gradcheck; `test_operator.py` compares with the operator written out
hop by hop as a dense matrix, and with differences along the group.
"""

import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from kernels.dirac.dirac_case import draw_links, draw_spinors, write_out_gammas
from pipeline_kernels.dirac import DiracOperator, join, reference, split
from pipeline_kernels.dirac.geometry import ALL, EVEN, ODD
from pipeline_kernels.dirac.op import PLAIN, combine_hops, gather_gradient

FACTORS = [0.3, -0.7, 1.1, 0.4]
EXTENTS = [(2, 2), (4, 2), (6, 4), (4, 8), (8, 16), (2, 4, 2, 2), (4, 4, 2, 6), (4, 4, 4, 4)]


def hop(psi, links, extents, boundary=None, parity=ALL, adjoint=False):
    """Return H psi by the operator of the links."""
    return DiracOperator(links, extents, 1.0, boundary=boundary).hop(psi, parity, adjoint=adjoint)


def hop_plainly(psi, links, *where):
    return reference.combine_hops(psi, None, links, None, PLAIN, *where)


class TestHops(KernelContract):
    folder = "dirac"
    tolerances = {torch.float64: 1e-13, torch.float32: 5e-5}
    options = {
        "function": ["hop", "combine", "gradient"],
        "extents": [(4, 2), (2, 4, 2, 2)],
        "n_colours": [3, 2],
        "parity": [ALL, EVEN, ODD],
        "adjoint": [False, True],
        "shape": [(2, 3)],  # configurations, right-hand sides
        "boundary": [(-1, 1, 1, 1)],
    }
    few = {"function": "combine", "extents": (2, 2), "n_colours": 2, "shape": (1, 1)}
    many = {"function": "combine", "extents": (4, 4, 2, 2), "shape": (2, 5)}
    empty = {"shape": (0, 3)}
    lanes = ({}, {"extents": (4, 2, 4, 4), "shape": (2, 2)})
    random = {
        "extents": st.sampled_from(EXTENTS),
        "shape": st.tuples(st.sampled_from([0, 1, 2, 5]), st.sampled_from([1, 3, 9])),
        "boundary": st.tuples(*[st.sampled_from([-1, 1])] * 4),
    }
    interpreted = (
        {**few, "shape": (1, 2)},
        {"function": "combine", "extents": (2, 4), "n_colours": 2},
        {"extents": (2, 4), "shape": (1, 1), "parity": ODD, "adjoint": True},
        {"extents": (2, 2, 2, 2), "shape": (1, 2), "parity": EVEN},
        {"function": "gradient", "extents": (2, 2, 2, 2), "shape": (1, 2), "parity": EVEN},
        # More sites than a program takes.
        {"extents": (12, 12), "n_colours": 2, "shape": (1, 1), "adjoint": True},
    )
    compiled = ({"function": "combine", "extents": (2, 4, 2, 2)}, few)
    refused = [
        (2, lambda _: (4, 3), "extents: expected 2 or 4 even numbers"),
        (2, lambda _: (4, 4, 4), "extents: expected 2 or 4 even numbers"),
        (2, lambda _: (4, 4), r"links: expected \(batch, 2, 16, N, N\)"),
        (3, lambda _: (1, 0), "boundary: expected 1 or -1"),
        (0, lambda psi: psi[0], r"psi: expected \(\d, n_rhs, 8, 2, \d\)"),
        (4, lambda _: ODD, r"psi: expected \(\d, n_rhs, 4, 2, \d\)"),
        (4, lambda _: 3, "parity: expected 0"),
        (0, lambda psi: psi.real, "psi: expected .* of torch.complex128"),
        (0, lambda psi: psi.to(torch.complex64), "psi: expected .* of torch.complex128"),
        (0, lambda psi: psi.repeat(2, 1, 1, 1, 1), "psi: expected .* got"),
    ]

    def choose_part(self, dtype, chosen):
        """Return the front end for four dimensions."""
        return "ttir" if len(chosen["extents"]) == 4 else "cubin"

    def draw(self, generator, function, extents, n_colours, parity, adjoint, shape, boundary):
        seed, kind = generator.initial_seed(), {"halved": parity != ALL}
        psi, chi = (draw_spinors(extents, n_colours, *shape, seed=seed + k, **kind) for k in (1, 2))
        links = draw_links(extents, n_colours, shape[0], seed=seed)
        where = [*extents], [*boundary[: len(extents)]], parity, adjoint
        if function == "hop":
            return Call(hop, hop_plainly, [psi, links], where)
        if function == "combine":
            constants = None, FACTORS, *where
            return Call(combine_hops, reference.combine_hops, [psi, chi, links], constants)
        return Call(gather_gradient, reference.hop_gradient, [chi, psi], where)


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


@pytest.mark.parametrize("extents", [(4, 2), (2, 4, 2, 2)])
def test_halves_are_those_of_all_sites(implementation, extents):
    links, psi = draw_links(extents, 2, 2), draw_spinors(extents, 2, 2, 3)
    even, odd = split(psi, extents)
    assert_close(join(even, odd, extents), psi)
    halves = hop(odd, links, extents, parity=EVEN), hop(even, links, extents, parity=ODD)
    assert_close(join(*halves, extents), hop(psi, links, extents))
