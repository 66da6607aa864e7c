"""Elastic constants; oracles: published ones of silicon, and Cauchy's relation of pairs."""

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.lj import LennardJones

from pipeline_atoms.config.properties import ElasticOptions
from pipeline_atoms.properties.elasticity import compute_elastic_constants
from plugins.atoms.properties.stillinger_weber import EPSILON, StillingerWeber

OPTIONS = ElasticOptions(name="all", structures=["x.cif"])


@pytest.mark.slow
def test_stillinger_weber_silicon():
    """151.4, 76.4 and 56.4 GPa with relaxed atoms: E. R. Cowley, Phys. Rev. Lett. 60, 2379."""
    found = compute_elastic_constants(bulk("Si", a=5.45), StillingerWeber(), OPTIONS)

    constants = found.arrays["constants"]
    for block, published in (
        (np.diag(constants)[:3], 151.4),
        (constants[:3, :3][~np.eye(3, dtype=bool)], 76.4),
        (np.diag(constants)[3:], 56.4),
    ):
        np.testing.assert_allclose(block, published, atol=0.1)
    assert np.abs(constants[:3, 3:]).max() < 0.1
    assert found.summary["stable"]
    assert found.summary["bulk_modulus_GPa"] == pytest.approx((151.4 + 2 * 76.4) / 3, abs=0.1)


def test_clamped_atoms_are_stiffer():
    """C44 is 117.2 GPa then: Balamane et al., Phys. Rev. B 46, 2250, whose bonds have 2.315 eV."""
    options = OPTIONS.model_copy(update={"relax": None})
    found = compute_elastic_constants(bulk("Si", a=5.431), StillingerWeber(), options).summary

    assert found["C44_GPa"] == pytest.approx(117.2 * EPSILON / 2.315, abs=0.2)


@pytest.mark.slow
def test_pairs_fulfil_the_relation_of_cauchy():
    pairs = LennardJones(sigma=3.4, epsilon=0.0104, rc=8 * 3.4)
    found = compute_elastic_constants(bulk("Ar", a=5.26), pairs, OPTIONS).summary

    assert found["C12_GPa"] == pytest.approx(found["C44_GPa"], rel=2e-3)


def test_an_unstable_crystal_has_no_moduli():
    """Diamond under strong tension gives way to shear."""
    options = OPTIONS.model_copy(update={"relax": None})
    found = compute_elastic_constants(bulk("Si", a=6.6), StillingerWeber(), options).summary

    assert not found["stable"]
    assert found["bulk_modulus_GPa"] is None
