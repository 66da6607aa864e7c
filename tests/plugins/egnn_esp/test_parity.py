"""Mirror images of a structure: with parity the same levels, without others.

Oracles: e3nn's matrices of orbitals for rotations with a reflection, (-1)^l those of the rotation;
the levels of a matrix and of its mirror image, which are equal; counts by hand.
"""

from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pipeline_egnn_esp.bands import compute_levels
from pipeline_egnn_esp.basis import Basis
from pipeline_egnn_esp.matrices import BlockMatrix
from pipeline_egnn_esp.network import Network
from pipeline_egnn_esp.options import ESPOptions
from pipeline_egnn_esp.rotation import rotate_matrix
from pipeline_egnn_esp.samples import Labelled
from plugins.egnn_esp import made_up, reference
from plugins.egnn_esp.mirrors import make_orbital_matrix
from tiers import run_first

o3 = pytest.importorskip("e3nn.o3")

CUTOFF = 3.4
SPDF = Basis({"H": (0, 1), "Hf": (0, 1, 2, 3)})
OXIDE = Basis({"Hf": (0, 0, 1, 2), "O": (0, 1)})
OPTIONS = {
    "one layer": {"layers": 1},
    "two layers": {"layers": 2},
    "three layers": {"layers": 3},
    "surroundings": {"bond_cutoff": CUTOFF / 2},
    "near atoms attended to": {"attention_cutoff": 2.9, "bond_cutoff": CUTOFF / 2},
    "one head, odd numbers": {"heads": 1, "channels": 5, "value_channels": 3},
}
MIRRORS = {
    "inversion": -torch.eye(3, dtype=torch.float64),
    "mirror": torch.diag(torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)),
    "any": None,
}


def make_network(basis, parity, cutoff=CUTOFF, **options):
    sizes = {"channels": 4, "lmax": 2 * basis.lmax, "layers": 2, "radial_functions": 6}
    sizes |= {"attention_channels": 3, "value_channels": 2, "hidden_channels": 4}
    sizes |= {"feed_forward_channels": 5, "cutoff": cutoff, "parity": parity}
    torch.manual_seed(0)
    return Network(ESPOptions(**sizes | options), basis).double()


def draw_mirror(name):
    """Return an orthogonal matrix of determinant -1."""
    if MIRRORS[name] is not None:
        return MIRRORS[name]
    torch.manual_seed(6)
    return -o3.rand_matrix()


def predict_both(module, basis, R):
    """Return what is predicted for a structure and for its image."""
    sample = made_up.pack_grid(list(basis.shells), (2, 2, 1), CUTOFF)
    image = {**sample, **{name: sample[name] @ R.T.numpy() for name in ("positions", "cell")}}
    with torch.no_grad():
        return [module(made_up.collate_samples(one)) for one in (sample, image)]


@pytest.mark.parametrize(
    "case", run_first(product(OPTIONS, MIRRORS), *zip(OPTIONS, cycle(MIRRORS), strict=False))
)
def test_blocks_are_mirrored_with_their_orbitals(double_precision, case):
    options, mirror = case
    R = draw_mirror(mirror)
    D = make_orbital_matrix(R, SPDF)
    for parity in (True, False):
        before, after = predict_both(make_network(SPDF, parity, **OPTIONS[options]), SPDF, R)
        for name, blocks in before.items():
            expected, scale = D @ blocks @ D.T, float(blocks.abs().max())
            assert scale > 0.1
            if parity:
                assert_close(after[name], expected, rtol=0, atol=1e-10 * scale)
                assert not torch.allclose(after[name], blocks, rtol=0, atol=1e-2 * scale)
            else:
                assert not torch.allclose(after[name], expected, rtol=0, atol=1e-2 * scale)


def predict_levels(matrix: BlockMatrix, module: Network) -> np.ndarray:
    """Return the levels of the predicted Hamiltonian with the overlap of the data."""
    one = matrix.structure
    symbols = [{72: "Hf", 8: "O"}[z] for z in one.atomic_numbers]
    sample = made_up.sample(symbols, one.positions, one.cell, module.options.cutoff)
    with torch.no_grad():
        outputs = module(made_up.collate_samples(sample))
    labelled = Labelled(matrix, 0.0, sample["edge_index"], sample["edge_shift"])
    blocks = (outputs[name].numpy() for name in ("node_blocks", "edge_blocks"))
    return compute_levels(replace(matrix, hamiltonian=labelled.gather_entries(*blocks)))


@pytest.mark.parametrize("mirror", run_first(MIRRORS, "any"))
def test_mirror_images_have_the_same_levels(double_precision, mirror):
    """Of a disordered cell of hafnia, with the overlap of CP2K."""
    frame = reference.read_shipped("monoclinic-2000K")
    image = rotate_matrix(frame, draw_mirror(mirror).numpy())
    for parity in (True, False):
        module = make_network(OXIDE, parity, cutoff=4.5, bond_cutoff=2.2)
        one, other = (predict_levels(matrix, module) for matrix in (frame, image))
        assert np.ptp(one) > 1
        difference = np.abs(one - other).max()
        assert difference < 1e-10 if parity else difference > 1e-3


def test_a_single_channel_is_refused():
    with pytest.raises(ValueError, match=r"value_channels is 1, .* at least 2"):
        ESPOptions(value_channels=1, parity=True)
