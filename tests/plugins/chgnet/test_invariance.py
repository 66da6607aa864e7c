"""Oracle: symmetry. What the choice of coordinates, of order and of cell must not change."""

import ase
import ase.build
import numpy as np
import pytest
import torch

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
