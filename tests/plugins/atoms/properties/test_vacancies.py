"""Vacancies; oracles: four broken bonds of silicon exactly, and published relaxed energies."""

import pytest
from ase.build import bulk
from ase.calculators.emt import EMT

from pipeline_atoms.config.properties import VacancyOptions
from pipeline_atoms.properties.vacancies import list_vacancies
from plugins.atoms.properties.stillinger_weber import EPSILON, StillingerWeber


def compute(atoms, calculator, reservoirs=None, **options):
    section = VacancyOptions(name="all", structures=["x.cif"], **options)
    tasks = list_vacancies(atoms, calculator, section, reservoirs or {})
    return {name: task().summary for name, task in tasks}


def test_unrelaxed_vacancy_of_silicon():
    """Each of four bonds has epsilon, an atom of the crystal two: 2 epsilon are left."""
    found = compute(bulk("Si", a=5.4309), StillingerWeber(), relax=None, supercell_length=7.0)

    assert list(found) == ["Si 0"]
    assert found["Si 0"]["unrelaxed_energy_eV"] == pytest.approx(2 * EPSILON, abs=1e-4)
    assert found["Si 0"]["formation_energy_eV"] is None


@pytest.mark.slow
def test_relaxed_vacancy_of_silicon():
    """2.82 eV where an atom of the crystal has 4.63 eV: Balamane et al., Phys. Rev. B 46, 2250.

    The symmetric site is a minimum, too, and a higher one.
    """
    silicon, options = bulk("Si", a=5.45, cubic=True), {"supercell_length": 16.0}
    found = compute(silicon, StillingerWeber(), **options)["Si 0"]
    symmetric = compute(silicon, StillingerWeber(), distortions=[0.0], **options)["Si 0"]

    assert found["converged"]
    assert symmetric["formation_energy_eV"] == pytest.approx(2 * EPSILON, abs=1e-3)
    assert found["formation_energy_eV"] == pytest.approx(2.82 * 2 * EPSILON / 4.63, rel=0.03)


def test_sites_and_reservoirs_of_an_alloy():
    """Ordered Cu3Au has two sites; the energies differ by what the reservoirs give."""
    alloy = bulk("Cu", a=3.75, cubic=True)
    alloy.symbols[0] = "Au"
    options = {"relax": None, "supercell_length": 7.0}
    pure = {"Cu": bulk("Cu", a=3.6)}
    free, given = (compute(alloy, EMT(), r, **options) for r in ({}, pure))

    assert list(free) == ["Au 0", "Cu 1"]
    assert given["Au 0"] == free["Au 0"]
    assert given["Cu 1"]["chemical_potential_of"] == "reservoir"
    gain = given["Cu 1"]["unrelaxed_energy_eV"] - free["Cu 1"]["unrelaxed_energy_eV"]
    pure["Cu"].calc = EMT()
    assert gain == pytest.approx(pure["Cu"].get_potential_energy())
    assert list(compute(alloy, EMT(), elements=["Au"], **options)) == ["Au 0"]
    with pytest.raises(ValueError, match=r"has no atom of Ag; correct the key elements"):
        compute(alloy, EMT(), elements=["Ag"], **options)
