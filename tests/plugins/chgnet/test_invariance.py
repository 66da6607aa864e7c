"""Oracle: symmetry. What the choice of coordinates, of order and of cell must not change."""

import ase
import ase.build
import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from pipeline_chgnet.model import CHGNet
from pipeline_chgnet.options import CHGNetOptions


@pytest.fixture(scope="module")
def predict(batch_of):
    torch.manual_seed(0)
    model = CHGNet(CHGNetOptions()).double()

    def outputs_of(*structures):
        with torch.no_grad():
            return model(batch_of(structures, torch.float64))

    return outputs_of


def same(one, other):
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_rotation(crystal, predict):
    matrix = Rotation.from_rotvec([0.3, -1.1, 0.7]).as_matrix()
    turned = ase.Atoms(
        crystal.numbers, crystal.positions @ matrix.T, cell=crystal.cell[:] @ matrix.T, pbc=True
    )
    before, after, R = predict(crystal), predict(turned), torch.tensor(matrix)

    same(after["energy"], before["energy"])
    same(after["magmoms"], before["magmoms"])
    same(after["forces"], before["forces"] @ R.T)
    same(after["stress"], R @ before["stress"] @ R.T)


def test_translation(crystal, predict):
    moved = crystal.copy()
    moved.translate([0.7, -5.1, 2.3])
    wrapped = moved.copy()
    wrapped.wrap()

    for name, value in predict(crystal).items():
        same(predict(moved)[name], value)
        same(predict(wrapped)[name], value)


def test_permutation(crystal, predict):
    order = [2, 0, 3, 1]
    before, after = predict(crystal), predict(crystal[order])

    same(after["energy"], before["energy"])
    same(after["stress"], before["stress"])
    same(after["forces"], before["forces"][order])
    same(after["magmoms"], before["magmoms"][order])


def test_supercell(crystal, predict):
    before, after = predict(crystal), predict(crystal.repeat((2, 1, 2)))

    same(after["energy"], 4 * before["energy"])
    same(after["forces"], before["forces"].repeat(4, 1))
    same(after["stress"], before["stress"])


def test_supercell_of_a_cell_with_bonds_between_images_of_one_atom(predict):
    """In the small cell both ends of a bond, and of an angle of 180 degrees, are the same atom."""
    copper = ase.build.bulk("Cu", "fcc", 3.6)
    before, after = predict(copper), predict(copper.repeat(3))

    same(after["energy"], 27 * before["energy"])
    same(after["stress"], before["stress"])


def test_other_lattice_vectors_of_the_same_lattice(crystal, predict):
    unimodular = np.array([[1, 1, 0], [0, 1, 0], [2, 0, 1]])
    other = ase.Atoms(
        crystal.numbers, crystal.positions, cell=unimodular @ crystal.cell[:], pbc=True
    )

    for name, value in predict(crystal).items():
        same(predict(other)[name], value)


def test_a_batch_equals_its_samples(crystal, predict):
    sparse = ase.build.bulk("Kr", "fcc", 7.0)  # no angles
    molecule = ase.build.molecule("H2O")
    structures = [crystal, sparse, molecule]
    together, alone = predict(*structures), [predict(atoms) for atoms in structures]

    for name, value in together.items():
        same(value, torch.cat([outputs[name] for outputs in alone]))


def test_forces_fade_at_the_cutoff(predict):
    """No jump where an atom leaves the reach of another (the envelope, polynomial of power 8)."""
    inside, outside = (
        predict(ase.Atoms("LiF", positions=[[0, 0, 0], [0, 0, z]])) for z in (5.9999, 5.99999)
    )

    assert outside["forces"].abs().max() < 1e-6
    assert (inside["energy"] - outside["energy"]).abs().max() < 1e-9
