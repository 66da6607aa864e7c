"""Coefficients that couple representations of O(3).

Oracles: e3nn's `wigner_3j`, the cross and the scalar product, orthogonality.
"""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pipeline_kernels.equivariant.clebsch_gordan import Irrep, clebsch_gordan

o3 = pytest.importorskip("e3nn.o3")
DEGREES = [
    (l1, l2, l3)
    for l1, l2 in product(range(5), repeat=2)
    for l3 in range(abs(l1 - l2), min(4, l1 + l2) + 1)
]


@pytest.mark.parametrize("degrees", DEGREES)
def test_equals_e3nn(degrees):
    import torch

    theirs = o3.wigner_3j(*degrees, dtype=torch.float64).numpy()
    assert_allclose(clebsch_gordan(*degrees), theirs, rtol=0, atol=1e-14)


def test_vectors_give_the_scalar_and_the_cross_product():
    x, y = np.random.default_rng(0).normal(size=(2, 3))
    scalar = np.einsum("ijk,i,j->k", clebsch_gordan(1, 1, 0), x, y)
    vector = np.einsum("ijk,i,j->k", clebsch_gordan(1, 1, 1), x, y)
    assert_allclose(scalar, x @ y / np.sqrt(3), rtol=1e-14)
    assert_allclose(vector, np.cross(x, y) / np.sqrt(6), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("l1", "l2"), [(0, 3), (2, 2), (3, 4), (6, 5)])
def test_all_couplings_together_are_orthogonal(l1, l2):
    parts = [
        np.sqrt(2 * l3 + 1) * clebsch_gordan(l1, l2, l3) for l3 in range(abs(l1 - l2), l1 + l2 + 1)
    ]
    whole = np.concatenate(parts, -1).reshape((2 * l1 + 1) * (2 * l2 + 1), -1)
    assert_allclose(whole @ whole.T, np.eye(len(whole)), atol=1e-12)


def test_is_made_once_and_not_written_to():
    table = clebsch_gordan(1, 2, 3)
    assert table is clebsch_gordan(1, 2, 3)
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0


@pytest.mark.parametrize("degrees", [(1, 1, 3), (2, 0, 1), (-1, 1, 0), (1, -1, 0)])
def test_degrees_that_do_not_couple_are_named(degrees):
    with pytest.raises(ValueError, match=r"l3 from \|l1 - l2\| to l1 \+ l2"):
        clebsch_gordan(*degrees)


@pytest.mark.parametrize(("one", "two"), [("0e", "3o"), ("1o", "1o"), ("2e", "1e"), ("2o", "3e")])
def test_products_are_those_of_e3nn(one, two):
    ours = [str(irrep) for irrep in Irrep.parse(one).multiply(Irrep.parse(two))]
    assert ours == [str(irrep) for irrep in o3.Irrep(one) * o3.Irrep(two)]
    assert Irrep.parse(one).dim == o3.Irrep(one).dim


@pytest.mark.parametrize("name", ["", "1", "o", "1x", "-1o", "16x0e"])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(ValueError, match="as in 0e or 1o"):
        Irrep.parse(name)
