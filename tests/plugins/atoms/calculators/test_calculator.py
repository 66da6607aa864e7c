"""Oracles: ASE's own Lennard-Jones calculator, ASE's finite differences, exact symmetries."""

import ase.build
import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.calculator import PropertyNotImplementedError

from pipeline_atoms.calculators.calculator import PotentialCalculator
from plugins.atoms.lennard_jones import GRAPH, LennardJones, make_ase_lennard_jones


def make_calculator(dtype=torch.float64, module=None):
    return PotentialCalculator(module or LennardJones(), GRAPH, ["Ar"], dtype=dtype)


def make_argon(seed=0, strain=0.03):
    rng = np.random.default_rng(seed)
    atoms = ase.build.bulk("Ar", "fcc", 5.3, cubic=True)
    atoms.set_cell(np.array(atoms.cell) + strain * rng.normal(size=(3, 3)), scale_atoms=True)
    atoms.rattle(0.1, rng=rng)
    return atoms


STRUCTURES = {
    "crystal": make_argon(),
    "slab": ase.build.fcc111("Ar", (2, 2, 3), a=5.3, vacuum=8.0),
    "cluster": Atoms("Ar3", positions=[[0, 0, 0], [3.6, 0, 0], [0, 4.1, 0.5]]),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_equals_the_calculator_of_ase(name):
    ours, theirs = STRUCTURES[name].copy(), STRUCTURES[name].copy()
    ours.calc = make_calculator()
    theirs.calc = make_ase_lennard_jones()

    assert ours.get_potential_energy() == pytest.approx(theirs.get_potential_energy(), abs=1e-10)
    assert np.allclose(ours.get_forces(), theirs.get_forces(), atol=1e-10)
    if ours.pbc.all():
        assert np.allclose(ours.get_stress(), theirs.get_stress(), atol=1e-11)


def test_atoms_that_become_another_element_are_seen():
    class Heavier(LennardJones):
        def energies(self, batch, vectors):
            outputs = super().energies(batch, vectors)
            return outputs | {"energy": outputs["energy"] * batch["atomic_numbers"][0]}

    atoms = make_argon()
    atoms.calc = PotentialCalculator(Heavier(), GRAPH, ["Ar", "Kr"], dtype=torch.float64)
    light = atoms.get_potential_energy()
    atoms.numbers[:] = 36
    assert atoms.get_potential_energy() == pytest.approx(2 * light)
    atoms.numbers[0] = 54
    with pytest.raises(ValueError, match=r"not on Xe \(atom 0"):
        atoms.get_potential_energy()


def test_the_answer_does_not_depend_on_the_images_that_atoms_stand_in():
    atoms = make_argon()
    atoms.calc = make_calculator(torch.float32)
    energy, forces = atoms.get_potential_energy(), atoms.get_forces()

    shifts = np.array([[400, 0, 0], [0, -300, 0], [0, 0, 0], [1, 2, 500]])
    atoms.positions += shifts @ np.array(atoms.cell)  # 2000 Å away float32 has 0.1 mÅ left

    assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-7)
    assert np.allclose(atoms.get_forces(), forces, atol=1e-6)


def assert_as_fresh(atoms):
    fresh = atoms.copy()
    fresh.calc = make_calculator()
    assert np.allclose(atoms.get_forces(), fresh.get_forces(), atol=1e-11)
    if atoms.pbc.all():
        assert np.allclose(atoms.get_stress(), fresh.get_stress(), atol=1e-12)
    energy = fresh.get_potential_energy()
    assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-11)


def test_a_trajectory_is_that_of_calculators_that_have_seen_nothing():
    atoms, rng = make_argon(), np.random.default_rng(2)
    atoms.calc = make_calculator()
    for step in range(12):
        atoms.positions += rng.normal(scale=0.08, size=(len(atoms), 3))
        if step % 4 == 3:  # as a barostat does
            atoms.set_cell(1.002 * np.array(atoms.cell), scale_atoms=True)
        assert_as_fresh(atoms)
    cluster = STRUCTURES["cluster"].copy()
    cluster.calc = make_calculator()
    cluster.get_forces()
    cluster.positions[2] += [0, 40, 0]  # out of reach
    assert_as_fresh(cluster)
    assert np.array_equal(cluster.get_forces()[2], np.zeros(3))


def test_type_and_device_belong_to_the_calculator():
    module = LennardJones()
    atoms = make_argon()
    before = torch.get_default_dtype(), module.scale.dtype, atoms.positions.copy()

    forces = {}
    for dtype in (torch.float32, torch.float64):
        atoms.calc = make_calculator(dtype, module)
        forces[dtype] = atoms.get_forces()

    assert 0 < np.abs(forces[torch.float32] - forces[torch.float64]).max() < 1e-5
    assert (torch.get_default_dtype(), module.scale.dtype) == before[:2]
    assert np.array_equal(atoms.positions, before[2])


def test_energies_of_free_atoms_keep_their_digits_in_single_precision():
    module = LennardJones()
    module.atom_energies[18] = -14_345.678901234
    atoms = make_argon()
    atoms.calc = make_calculator(torch.float32, module)
    bare = make_argon()
    bare.calc = make_calculator(torch.float32)

    expected = bare.get_potential_energy() - len(atoms) * 14_345.678901234
    assert atoms.get_potential_energy() == pytest.approx(expected, abs=1e-9)


def test_what_is_not_predicted_is_not_given():
    """Magnetic moments, forces, and the stress of what has no three-dimensional cell."""
    module = LennardJones(predicts=("energy", "magmoms"))
    atoms = make_argon()
    atoms.calc = make_calculator(module=module)
    assert atoms.get_magnetic_moments().sum() == pytest.approx(atoms.get_potential_energy())
    with pytest.raises(PropertyNotImplementedError):
        atoms.get_forces()
    slab = STRUCTURES["slab"].copy()
    slab.calc = make_calculator()
    with pytest.raises(PropertyNotImplementedError):
        slab.get_stress()


def move_together(atoms):
    atoms.positions[1] = atoms.positions[0]


WRONG = {
    "no atoms": (lambda atoms: atoms.__delitem__(slice(None)), r"the structure has no atoms"),
    "NaN": (
        lambda atoms: atoms.positions.__setitem__((2, 1), np.nan),
        r"atom 2 has a non-finite .*, nan,",
    ),
    "infinite": (
        lambda atoms: atoms.positions.__setitem__((2, 1), 1e300),
        r"too large position .*1e\+300",
    ),
    "no cell": (lambda atoms: atoms.set_cell(np.zeros((3, 3))), r"3 directions are periodic, but"),
    "flat cell": (
        lambda atoms: atoms.set_cell(np.ones((3, 3))),
        r"do not span them; give the cell",
    ),
    "NaN in the cell": (lambda atoms: atoms.set_cell([np.nan, 1, 1]), r"is not finite; correct it"),
    "one place": (move_together, r"atoms 0 and 1 are in one place, 0 Å apart"),
    "no element": (lambda atoms: atoms.numbers.fill(119), r"not on element 119 \(atom 0 of 4\)"),
    "a cell of a picometre": (lambda atoms: atoms.set_cell([1e-3] * 3), r"edges within .* [TP]B"),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_a_structure_without_an_answer_is_refused(name, again):
    atoms, (spoil, message) = make_argon(), WRONG[name]
    atoms.calc = make_calculator()
    if again:
        atoms.get_forces()
    spoil(atoms)

    with pytest.raises(ValueError, match=message):
        atoms.get_forces()


class Greedy(LennardJones):
    def energies(self, batch, vectors):
        return {"energy": torch.empty(10**16)}


@pytest.mark.parametrize(
    ("atoms", "module", "message"),
    [
        (
            ase.build.bulk("NaCl", "rocksalt", 5.6),
            None,
            r"on Ar, not on Na \(atom 0 of 2\); train",
        ),
        (Atoms("Ar", cell=[30, 30, 30], pbc=True), None, r"no atom has a neighbour within 6.5 Å"),
        (
            make_argon(),
            LennardJones(scale=float("inf")),
            r"predicts energy and forces and stress that are not",
        ),
        (make_argon(), Greedy(), r"out of memory on a structure of 4 atoms and \d+ edges"),
    ],
    ids=["element", "neighbours", "not finite", "memory"],
)
def test_what_has_no_prediction_is_explained(atoms, module, message):
    atoms.calc = make_calculator(module=module)
    with pytest.raises(ValueError, match=message):
        atoms.get_potential_energy()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_gives_what_the_cpu_gives():
    atoms = make_argon()
    module = LennardJones()
    module.atom_energies[18] = -14_345.678901234
    atoms.calc = make_calculator(module=module)
    energy, forces, stress = atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress()

    atoms.calc = PotentialCalculator(module, GRAPH, ["Ar"], device="cuda", dtype=torch.float64)

    assert atoms.get_potential_energy() == pytest.approx(energy, abs=1e-9)
    assert np.allclose(atoms.get_forces(), forces, atol=1e-12)
    assert np.allclose(atoms.get_stress(), stress, atol=1e-13)
