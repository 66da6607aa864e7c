"""Coefficients that are zero; oracle: rules of selection by hand."""

import pytest

from pipeline_mace.options import MACEOptions
from pipeline_mace.sparsity import count_coefficients, make_plan


def test_scalars_times_harmonics_have_as_many_as_components():
    # (2 l + 1)² coefficients of 0 x l -> l, of which the diagonal is not zero: l = 0 to 3.
    result = count_coefficients(MACEOptions(layers=1))
    assert result == {"all": 84, "nonzero": 16, "share": pytest.approx(16 / 84)}


def test_two_layers_of_the_paper_have_a_fifth():
    # 10 paths of 0e + 1o with harmonics up to degree 3: as many entries by the dimensions alone.
    result = count_coefficients(MACEOptions(layers=2))
    dims = [path.dims for path in make_plan(MACEOptions(), 1).paths]
    assert len(dims) == 10
    assert result["all"] == 84 + sum(a * b * c for a, b, c in dims)
    assert result["share"] == pytest.approx(0.2, abs=0.02)
