"""Our potentials in torch-sim; oracles: ASE's Lennard-Jones potential, torch-sim's own checks."""

import numpy as np
import pytest

from pipeline_atoms.calculators.committee import Committee
from plugins.atoms.engines.systems import STEPS, TIMESTEP, make_moving_argon, run_with_ase
from plugins.atoms.lennard_jones import make_ase_lennard_jones, make_calculator

pytest.importorskip("torch_sim", reason="needs the extra `torch-sim`", exc_type=ImportError)


def make_model():
    from pipeline_atoms.engines.torch_sim import TorchSimModel

    return TorchSimModel(make_calculator())


def test_a_batch_has_the_energies_forces_and_stresses_of_ase():
    from plugins.atoms.engines.torch_sim_runs import make_state

    structures = [make_moving_argon(1), make_moving_argon(2).repeat((2, 1, 1))]
    outputs = make_model()(make_state(structures))
    for atoms in structures:
        atoms.calc = make_ase_lennard_jones()
    forces = np.concatenate([atoms.get_forces() for atoms in structures])
    energies = [atoms.get_potential_energy() for atoms in structures]
    stresses = [atoms.get_stress(voigt=False) for atoms in structures]
    assert np.allclose(outputs["energy"], energies, rtol=0, atol=1e-9)
    assert np.allclose(outputs["forces"], forces, rtol=0, atol=1e-9)
    assert np.allclose(outputs["stress"], stresses, rtol=0, atol=1e-9)


def test_energies_of_each_step_are_those_of_ase():
    from plugins.atoms.engines.torch_sim_runs import list_energies

    structures = [make_moving_argon(1), make_moving_argon(2).repeat((2, 1, 1))]
    energies = list_energies(make_model(), structures, STEPS, TIMESTEP)
    for number, atoms in enumerate(structures):
        expected, _ = run_with_ase(atoms, make_ase_lennard_jones())
        assert np.ptp(expected) > 1e-3  # it moves
        assert np.allclose(energies[:, number], expected, rtol=0, atol=1e-6)


def test_other_structures_in_the_same_places_of_a_batch():
    """Such as those that torch-sim puts into the places of the ones that have converged."""
    from plugins.atoms.engines.torch_sim_runs import make_state

    model, one, two = make_model(), make_moving_argon(1), make_moving_argon(2)
    small = two.repeat((2, 1, 1))
    for structures in ([one, two], [two, one], [small, one], [one]):
        energies = model(make_state(structures))["energy"].tolist()
        expected = [make_model()(make_state([atoms]))["energy"].item() for atoms in structures]
        assert energies == pytest.approx(expected, abs=1e-12)


def test_clusters_have_no_stress():
    from plugins.atoms.engines.torch_sim_runs import make_state

    atoms = make_moving_argon()
    atoms.pbc = False
    outputs = make_model()(make_state([atoms]))
    atoms.calc = make_ase_lennard_jones()
    assert outputs.keys() == {"energy", "forces"}
    assert outputs["energy"].item() == pytest.approx(atoms.get_potential_energy(), abs=1e-9)


def test_what_is_no_potential_is_refused():
    from pipeline_atoms.engines.torch_sim import TorchSimModel
    from plugins.atoms.engines.torch_sim_runs import make_state

    with pytest.raises(ValueError, match="takes one potential, not a Committee"):
        TorchSimModel(Committee([make_calculator(), make_calculator()]))
    atoms = make_moving_argon()
    atoms.symbols = "Kr4"
    with pytest.raises(ValueError, match="the model was trained on Ar, not on Kr"):
        make_model()(make_state([atoms]))
