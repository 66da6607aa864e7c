"""Couplings of the symmetric contraction, and the polynomial that they make.

Oracle: how many couplings mace-torch 0.3.16 has; linear algebra.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pipeline_kernels.equivariant.clebsch_gordan import Irrep
from pipeline_kernels.equivariant.contraction import Polynomial, basis

INPUTS = tuple(map(Irrep.parse, ("0e", "1o", "2e", "3o")))
AXIAL = (Irrep.parse("1e"),)
MODEL = Polynomial(INPUTS, INPUTS[:2], 3)


@pytest.mark.parametrize(
    ("to", "degree", "n_paths", "n_entries"),
    [("0e", 2, 4, 16), ("1o", 2, 6, 70), ("0e", 3, 23, 353), ("1o", 3, 51, 2838)],
)
def test_there_are_as_many_couplings_as_in_mace(to, degree, n_paths, n_entries):
    tensor = basis.compute_couplings(INPUTS, Irrep.parse(to), degree)
    assert tensor.shape[-1] == n_paths
    assert np.count_nonzero(abs(tensor) > 1e-10) == n_entries


def test_few_couplings_are_independent():
    reduced = Polynomial(INPUTS, MODEL.irreps_out, 3, independent=True)
    counts = {(str(b.irrep), b.degree): b.n_weights for b in reduced.blocks}
    assert (counts["0e", 3], counts["1o", 3]) == (8, 12)
    assert (MODEL.n_terms, reduced.n_terms) == (410, 410)
    S, full = reduced.expansion, MODEL.expansion
    assert_allclose(S.T @ S, np.eye(reduced.n_weights), rtol=0, atol=1e-12)
    assert abs(full - S @ (S.T @ full)).max() < 1e-12  # nothing that the others span is lost


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((INPUTS, INPUTS, 4), "correlation: expected 1 to 3, got 4"),
        ((INPUTS, AXIAL, 2), r"irreps_out: no product of up to 2 .*\['1e'\]"),
        (((), INPUTS, 1), "at least one representation"),
    ],
)
def test_wrong_polynomials(arguments, message):
    with pytest.raises(ValueError, match=message):
        Polynomial(*arguments)
