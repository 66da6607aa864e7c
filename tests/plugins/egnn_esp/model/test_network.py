"""The symmetries of the network, for random weights.

Oracles: e3nn's matrices of orbitals, (-1)^l times those of the rotation where it is reflected, too;
symmetry; the levels of a matrix and of its mirror image, which are equal.
"""

import re
from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pipeline_egnn_esp.data.bands import compute_levels
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.samples import Labelled
from pipeline_egnn_esp.options import ESPOptions
from plugins.egnn_esp import made_up, reference
from plugins.egnn_esp.rotation import rotate_matrix
from tiers import run_first

o3 = pytest.importorskip("e3nn.o3")

CUTOFF = 3.4
OXIDE = Basis({"Hf": (0, 0, 1), "O": (0, 1)})
UNEQUAL = Basis({"H": (0,), "Hf": (0, 1, 2, 3)})
FIRST = {
    None: re.compile(r"(node|edge)_blocks\.0\.norms\.0\.scales"),
    CUTOFF / 2: re.compile(r"node_blocks\.0\.norms\.0\.scales"),
}
"""What acts on degrees above 0 of first features that have none, by `bond_cutoff`."""


@pytest.fixture(params=[False, True], ids=["rotations", "reflections"])
def parity(request):
    return request.param


def make_network(basis=OXIDE, **options):
    return made_up.make_network(basis, CUTOFF, **{"bond_cutoff": CUTOFF / 2} | options)


def make_structure(basis=OXIDE, **options):
    """A cell so short along one axis that atoms see their own images."""
    return made_up.pack_grid(list(basis.shells), (2, 2, 1), CUTOFF, **options)


def make_orbital_matrix(R, basis):
    """Return the matrix of the common orbitals for a rotation, or one with a reflection."""
    order = [1, 2, 0]  # of x, y, z, to the vectors of e3nn
    shells = (o3.Irrep(n, (-1) ** n) for n in basis.common)
    return torch.block_diag(*(shell.D_from_matrix(R[order][:, order]) for shell in shells))


def draw_rotation(sign=1):
    """Return an orthogonal matrix of this determinant."""
    torch.manual_seed(6)
    return sign * o3.rand_matrix()


MIRRORS = {
    "inversion": lambda: -torch.eye(3),
    "mirror": lambda: torch.diag(torch.tensor([1.0, -1.0, 1.0])),
    "any": lambda: draw_rotation(-1),
}
OPTIONS = {
    "one layer": {"layers": 1},
    "two layers": {"bond_cutoff": None},
    "three layers": {"layers": 3},
    "near atoms attended to": {"attention_cutoff": 2.9},
    "one head, odd numbers": {"heads": 1, "channels": 5, "value_channels": 3},
}


def compare_turned(module, basis, R, *, equal=True):
    """Check whether blocks of a turned structure are the turned blocks."""
    sample, D = make_structure(basis), make_orbital_matrix(R, basis)
    image = {**sample, **{name: sample[name] @ R.T.numpy() for name in ("positions", "cell")}}
    with torch.no_grad():
        before, after = (module(made_up.collate_samples(one)) for one in (sample, image))
    for name, blocks in before.items():
        expected, scale = D @ blocks @ D.T, float(blocks.abs().max())
        assert scale > 0.1
        assert not torch.allclose(after[name], blocks, rtol=0, atol=1e-2 * scale)
        if equal:
            assert_close(after[name], expected, rtol=0, atol=1e-10 * scale)
        else:
            assert not torch.allclose(after[name], expected, rtol=0, atol=1e-2 * scale)


@pytest.mark.parametrize("basis", [OXIDE, UNEQUAL], ids=["oxide", "s beside spdf"])
def test_blocks_turn_with_their_orbitals(double_precision, basis, parity):
    compare_turned(make_network(basis, parity=parity), basis, draw_rotation())


@pytest.mark.parametrize(
    "case", run_first(product(OPTIONS, MIRRORS), *zip(OPTIONS, cycle(MIRRORS), strict=False))
)
def test_only_with_parity_blocks_are_mirrored(double_precision, case):
    options, R = OPTIONS[case[0]], MIRRORS[case[1]]()
    for parity in (True, False):
        module = make_network(UNEQUAL, parity=parity, **options)
        compare_turned(module, UNEQUAL, R, equal=parity)


def predict_levels(matrix, module):
    """Return the levels of the predicted Hamiltonian with the overlap of the data."""
    one = matrix.structure
    symbols = ["Hf" if z == 72 else "O" for z in one.atomic_numbers]
    sample = made_up.sample(symbols, one.positions, one.cell, module.cutoff)
    with torch.no_grad():
        outputs = module(made_up.collate_samples(sample))
    labelled = Labelled(matrix, 0.0, sample["edge_index"], sample["edge_shift"])
    blocks = (outputs[name].numpy() for name in ("node_blocks", "edge_blocks"))
    return compute_levels(replace(matrix, hamiltonian=labelled.gather_entries(*blocks)))


@pytest.mark.slow
@pytest.mark.parametrize("mirror", run_first(MIRRORS, "any"))
def test_only_with_parity_mirror_images_have_the_same_levels(double_precision, mirror):
    """Of a disordered cell of hafnia, with the overlap of CP2K."""
    frame = reference.read_shipped("monoclinic-2000K")
    image = rotate_matrix(frame, MIRRORS[mirror]().numpy())
    for parity in (True, False):
        options = {"hidden_channels": 4, "bond_cutoff": 2.2, "parity": parity}
        module = made_up.make_network(reference.BASIS, 4.5, **options)
        one, other = (predict_levels(matrix, module) for matrix in (frame, image))
        assert np.ptp(one) > 1
        difference = np.abs(one - other).max()
        assert difference < 1e-10 if parity else difference > 1e-3


def assert_equal_outputs(actual, expected, tolerance):
    for name, blocks in expected.items():
        scale = float(blocks.detach().abs().max())
        assert_close(actual[name], blocks, rtol=0, atol=tolerance * scale)


def list_keys(sample):
    rows = np.concatenate([sample["edge_index"], sample["edge_shift"]], axis=1)
    return {tuple(map(int, row)): number for number, row in enumerate(rows)}


def test_the_order_of_atoms_and_edges_makes_no_difference(parity):
    sample, module = make_structure(), make_network(parity=parity)
    atoms = np.array([2, 0, 3, 1])  # new atom k is old atom atoms[k]
    edges = np.random.default_rng(3).permutation(len(sample["edge_index"]))
    other = dict(sample)
    for name in ("atomic_numbers", "positions"):
        other[name] = sample[name][atoms]
    other["edge_index"] = atoms.argsort()[sample["edge_index"]][edges]
    other["edge_shift"] = sample["edge_shift"][edges]
    other["reverse_edge"] = made_up.find_opposite(other["edge_index"], other["edge_shift"])
    actual, expected = (
        module(made_up.collate_samples(other)),
        module(made_up.collate_samples(sample)),
    )
    expected["node_blocks"] = expected["node_blocks"][torch.from_numpy(atoms)]
    expected["edge_blocks"] = expected["edge_blocks"][torch.from_numpy(edges)]
    assert_equal_outputs(actual, expected, 1e-12)


def test_the_image_of_an_atom_makes_no_difference(parity):
    sample, module = make_structure(), make_network(parity=parity)
    positions, move = sample["positions"].copy(), np.array([1, -2, 3])
    positions[1] += move @ sample["cell"]
    symbols = [{72: "Hf", 8: "O"}[z] for z in sample["atomic_numbers"]]
    moved = made_up.sample(symbols, positions, sample["cell"], CUTOFF)
    moves = np.zeros((4, 3), int)
    moves[1] = move
    place = list_keys(moved)
    order = [
        place[i, j, *(np.array(R) + moves[i] - moves[j]).tolist()] for i, j, *R in list_keys(sample)
    ]
    actual, expected = (
        module(made_up.collate_samples(moved)),
        module(made_up.collate_samples(sample)),
    )
    actual["edge_blocks"] = actual["edge_blocks"][order]
    assert_equal_outputs(actual, expected, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("basis", [OXIDE, UNEQUAL], ids=["oxide", "s beside spdf"])
def test_the_matrix_is_hermitian_to_the_last_bit(basis, dtype, parity):
    batch = made_up.collate_samples(make_structure(basis), dtype=dtype)
    module = make_network(basis, parity=parity).to(dtype)
    outputs = module(batch)
    nodes, edges = outputs["node_blocks"], outputs["edge_blocks"]
    assert nodes.dtype == edges.dtype == dtype
    assert torch.equal(nodes, nodes.mT)
    assert torch.equal(edges, edges[batch["reverse_edge"]].mT)
    numbers, ends = batch["atomic_numbers"].numpy(), batch["edge_index"].numpy().T
    for blocks, mask in (
        (nodes, basis.mask(numbers, numbers)),
        (edges, basis.mask(*numbers[ends])),
    ):
        assert torch.equal(blocks != 0, torch.from_numpy(mask))


@pytest.mark.parametrize("bond_cutoff", FIRST)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_every_parameter_learns(layers, bond_cutoff, parity):
    options, first = {"layers": layers, "parity": parity}, FIRST[bond_cutoff]
    module = make_network(UNEQUAL, bond_cutoff=bond_cutoff, **options)
    outputs = module(made_up.collate_samples(make_structure(UNEQUAL)))
    sum(blocks.square().sum() for blocks in outputs.values()).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert bool(parameter.grad.abs().max() > 0) != bool(first.match(name)), name


def test_single_precision_is_double_precision_rounded(parity):
    sample, module = make_structure(), make_network(parity=parity)
    expected = module(made_up.collate_samples(sample))
    actual = module.float()(made_up.collate_samples(sample, dtype=torch.float32))
    assert_equal_outputs({n: x.double() for n, x in actual.items()}, expected, 1e-4)


def test_autocast_is_single_precision_roughly(parity):
    batch = made_up.collate_samples(make_structure(), dtype=torch.float32)
    module = make_network(parity=parity).float()
    expected = module(batch)
    with torch.autocast("cpu", torch.bfloat16):
        actual = module(batch)
    sum(blocks.float().square().sum() for blocks in actual.values()).backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())
    assert_equal_outputs({n: x.float() for n, x in actual.items()}, expected, 0.1)


def test_structures_of_a_batch_do_not_see_each_other(parity):
    samples = [make_structure(seed=seed) for seed in (5, 6)]
    module = make_network(parity=parity)
    apart = [module(made_up.collate_samples(sample)) for sample in samples]
    together = module(made_up.collate_samples(*samples))
    expected = {name: torch.cat([outputs[name] for outputs in apart]) for name in together}
    assert_equal_outputs(together, expected, 1e-12)


def test_an_atom_without_edges(parity):
    module, cell = make_network(parity=parity), 30 * np.eye(3)
    lonely = made_up.sample(["Hf"], np.zeros((1, 3)), cell, CUTOFF)
    positions = np.array([[0.0, 0, 0], [15, 15, 15], [16, 16, 16]])
    beside = made_up.sample(["Hf", "O", "O"], positions, cell, CUTOFF)
    alone, among = module(made_up.collate_samples(lonely)), module(made_up.collate_samples(beside))
    assert alone["edge_blocks"].shape == (0, 5, 5)
    assert alone["node_blocks"].abs().max() > 0.1
    assert len(among["edge_blocks"]) == 2
    assert_close(among["node_blocks"][:1], alone["node_blocks"], rtol=0, atol=1e-12)
    sum(blocks.sum() for blocks in alone.values()).backward()


def test_atoms_attend_up_to_a_distance():
    """Atoms further off leave those of the first layer as they are; weights fall to zero there.

    Each atom has a nearer neighbour: that of an only one is one wherever it is.
    """
    module, cell = make_network(layers=1, attention_cutoff=2.5), 30 * np.eye(3)

    def outputs(distance):
        positions = np.array([[0.0, 0, 0], [1.2, 0.3, 0], [0, distance, 0], [0, distance, 1.5]])
        sample = made_up.sample(["Hf", "O", "O", "Hf"], positions, cell, CUTOFF)
        with torch.no_grad():
            return module(made_up.collate_samples(sample))

    near, before, after, far = map(outputs, (2.3, 2.5 - 1e-6, 2.5 + 1e-6, 2.7))
    assert_equal_outputs(before, after, 1e-5)
    first = [actual["node_blocks"][0] for actual in (near, after, far)]
    assert torch.equal(first[1], first[2])
    assert not torch.allclose(first[0], first[1], rtol=0, atol=1e-4)
    assert not torch.allclose(far["edge_blocks"], after["edge_blocks"], rtol=0, atol=1e-4)


def test_edges_see_what_is_around_their_middle():
    """Without, the block of far atoms does not change with an atom that neither attends to."""

    def block(height, bond_cutoff):
        positions = np.array([[0.0, 0, 0], [3.3, 0, 0], [1.65, height, 0]])
        sample = made_up.sample(["Hf", "Hf", "O"], positions, 30 * np.eye(3), CUTOFF)
        [place] = np.flatnonzero((sample["edge_index"] == [0, 1]).all(1))
        module = make_network(layers=1, attention_cutoff=1.5, bond_cutoff=bond_cutoff)
        with torch.no_grad():
            return module(made_up.collate_samples(sample))["edge_blocks"][place]

    assert torch.equal(block(1.0, None), block(1.2, None))
    assert not torch.allclose(block(1.0, 1.7), block(1.2, 1.7), rtol=0, atol=1e-3)
    assert_close(block(1.7 - 1e-6, 1.7), block(1.7 + 1e-6, 1.7), rtol=0, atol=1e-9)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"bond_cutoff: 1.8 Å, .* at most half of .*, 1\.7 Å"):
        make_network(bond_cutoff=1.8)
    with pytest.raises(ValueError, match=r"model\.lmax is 2, .* at least 6"):
        make_network(UNEQUAL, lmax=2)
    with pytest.raises(ValueError, match=r"value_channels is 1, .* at least 2"):
        ESPOptions(value_channels=1, parity=True)
    sample = make_structure(Basis({"Hf": (0,), "H": (0,)}))
    with pytest.raises(ValueError, match="hold H, but the network was trained on O, Hf"):
        make_network()(made_up.collate_samples(sample))
