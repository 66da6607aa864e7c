"""Phonons; oracles: ASE's finite displacements, Dulong and Petit, an unstable crystal."""

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.lj import LennardJones
from ase.phonons import Phonons
from ase.units import _e, _hbar

from pipeline_atoms.config.properties import PhononOptions
from pipeline_atoms.properties import phonons
from plugins.atoms.properties.stillinger_weber import StillingerWeber

pytest.importorskip("phonopy")
OPTIONS = PhononOptions(name="all", structures=["si.cif"], relax=None, supercell_length=9.0)
A = 5.4309


@pytest.mark.slow
def test_silicon_as_ase_has_it(tmp_path):
    found = phonons.compute_phonons(bulk("Si", a=A), StillingerWeber(), OPTIONS)
    peer = Phonons(bulk("Si", a=A), StillingerWeber(), (4, 4, 4), delta=0.01, name=tmp_path / "p")
    peer.run()
    peer.read(acoustic=True)
    names = found.arrays["point_names"].tolist()
    points = {"G": (0, 0, 0), "X": (0.5, 0, 0.5), "L": (0.5, 0.5, 0.5)}
    for name, point in points.items():
        ours = np.sort(found.arrays["point_frequencies"][names.index(name)])
        energies = peer.band_structure([point], verbose=False)[0]
        theirs = np.sort(energies.real) * _e / (2 * np.pi * _hbar) / 1e12
        np.testing.assert_allclose(ours, theirs, atol=0.05)
    assert not found.summary["imaginary"]
    assert found.summary["imaginary_share"] == 0


@pytest.mark.slow
def test_thermodynamics_of_hot_silicon():
    """3 k an atom at high temperatures, after Dulong and Petit; three modes an atom in all."""
    options = OPTIONS.model_copy(update={"max_temperature": 5000.0, "supercell_length": 6.0})
    found = phonons.compute_phonons(bulk("Si", a=A), StillingerWeber(), options)

    assert found.arrays["heat_capacity"][-1] == pytest.approx(3, rel=0.01)
    modes = np.trapezoid(found.arrays["dos"], found.arrays["dos_frequencies"])
    assert modes == pytest.approx(3, rel=0.02)
    zero_point = found.summary["zero_point_energy_per_atom_meV"]
    mean = np.trapezoid(
        found.arrays["dos"] * found.arrays["dos_frequencies"], found.arrays["dos_frequencies"]
    )
    assert zero_point == pytest.approx(mean * 4.135667696 / 2, rel=0.02)


@pytest.mark.slow
def test_imaginary_modes_are_flagged():
    """Nothing holds a simple cubic crystal of pairs against shear (Born, 1940)."""
    options = OPTIONS.model_copy(update={"supercell_length": 3.5})
    crystal = bulk("Ar", "sc", a=1.1)
    found = phonons.compute_phonons(crystal, LennardJones(rc=1.6, smooth=True), options).summary

    assert found["imaginary"]
    assert found["lowest_frequency_THz"] < -OPTIONS.tolerance
    assert found["imaginary_modes_at"]
    assert 0 < found["imaginary_share"] <= 1


def test_missing_phonopy_is_named(monkeypatch):
    monkeypatch.setattr(phonons, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'pipeline-core\[phonons\]'"):
        phonons.require_phonopy()
