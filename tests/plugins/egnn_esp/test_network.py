"""The symmetries of the network, for random weights.

Oracles: e3nn's Wigner matrices of orbitals; symmetry; finite differences; counts by hand.
"""

import re

import numpy as np
import pytest
import torch
from ase.data import atomic_numbers as number_of
from torch.testing import assert_close

from pipeline_egnn_esp import surroundings
from pipeline_egnn_esp.basis import Basis
from pipeline_egnn_esp.network import Network
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.equivariant.density import bond_density
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from plugins.egnn_esp import made_up
from plugins.egnn_esp.mirrors import make_orbital_matrix

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


def make_network(basis=OXIDE, dtype=torch.float64, **options):
    sizes = {"channels": 4, "lmax": 2 * basis.lmax, "layers": 2, "radial_functions": 6}
    sizes |= {"attention_channels": 3, "value_channels": 2, "hidden_channels": 3}
    sizes |= {"feed_forward_channels": 5, "cutoff": CUTOFF, "bond_cutoff": CUTOFF / 2}
    torch.manual_seed(0)
    return Network(ESPOptions(**sizes | options), basis).to(dtype)


def make_structure(basis=OXIDE, **options):
    """A cell so short along one axis that atoms see their own images."""
    return made_up.pack_grid(list(basis.shells), (2, 2, 1), CUTOFF, **options)


def rebuild(sample, positions, cell):
    symbols = [{v: k for k, v in number_of.items()}[z] for z in sample["atomic_numbers"]]
    return made_up.sample(symbols, positions, cell, CUTOFF)


@pytest.mark.parametrize("basis", [OXIDE, UNEQUAL], ids=["oxide", "s beside spdf"])
def test_blocks_turn_with_their_orbitals(double_precision, basis, parity):
    sample, module = make_structure(basis), make_network(basis, parity=parity)
    torch.manual_seed(6)
    R = o3.rand_matrix()
    turned = rebuild(sample, sample["positions"] @ R.T.numpy(), sample["cell"] @ R.T.numpy())
    assert np.array_equal(turned["edge_shift"], sample["edge_shift"])
    before, after = module(made_up.collate_samples(sample)), module(made_up.collate_samples(turned))
    D = make_orbital_matrix(R, basis)
    for name, blocks in before.items():
        scale = float(blocks.detach().abs().max())
        assert scale > 0.1
        assert_close(after[name], D @ blocks @ D.T, rtol=0, atol=1e-10 * scale)
        assert not torch.allclose(after[name], blocks, rtol=0, atol=1e-2 * scale)


def test_the_angle_about_an_edge_is_free(double_precision, parity):
    """Frames of edges, turned about their edges, are frames as good."""
    batch, module = made_up.collate_samples(make_structure()), make_network(parity=parity)
    actual = module(batch)
    angles = 2 * torch.pi * torch.rand(len(batch["edge_index"]), generator=torch.manual_seed(2))
    frames = compute_edge_frames(compute_vectors(batch), module.options.lmax)
    parts, begin = [], 0
    for degree in range(module.options.lmax + 1):
        d = 2 * degree + 1
        D = frames[:, begin : begin + d * d].unflatten(1, (d, d))
        about = o3.Irrep(degree, 1).D_from_angles(angles, 0 * angles, 0 * angles)
        parts.append((about @ D).flatten(1))
        begin += d * d
    other = module(batch | {"frames": torch.cat(parts, 1)})
    assert_equal_outputs(other, actual, 1e-12)


def compute_vectors(batch):
    receiver, sender = batch["edge_index"].T
    shift = batch["edge_shift"].double() @ batch["cell"][0]
    return batch["positions"][sender] - batch["positions"][receiver] + shift


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
    moved = rebuild(sample, positions, sample["cell"])
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
    module = make_network(basis, dtype, parity=parity)
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
    module = make_network(dtype=torch.float32, parity=parity)
    expected = module(batch)
    with torch.autocast("cpu", torch.bfloat16):
        actual = module(batch)
    sum(blocks.float().square().sum() for blocks in actual.values()).backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())
    assert_equal_outputs({n: x.float() for n, x in actual.items()}, expected, 0.1)


def test_derivatives_by_positions_are_those_through_distances(monkeypatch):
    """With frames and densities held fixed, what is left are Gaussians: finite differences."""
    batch, module = made_up.collate_samples(make_structure()), make_network()
    frames = compute_edge_frames(compute_vectors(batch), module.options.lmax)
    densities = []

    def density(*arguments):
        if not densities:
            densities.append(bond_density(*arguments))
        return densities[0]

    monkeypatch.setattr(surroundings, "bond_density", density)
    direction = torch.randn(4, 3, generator=torch.manual_seed(4), dtype=torch.float64)

    def loss(positions):
        outputs = module(batch | {"positions": positions, "frames": frames})
        return sum(blocks.square().sum() for blocks in outputs.values())

    positions = batch["positions"].clone().requires_grad_()
    [gradient] = torch.autograd.grad(loss(positions), positions)
    with torch.no_grad():
        steps = [loss(positions + h * direction) for h in (1e-5, -1e-5)]
    slope = float((gradient * direction).sum())
    assert abs(slope) > 1e-3
    assert slope == pytest.approx(float(steps[0] - steps[1]) / 2e-5, rel=1e-6)


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


def test_the_number_of_parameters():
    """HfO2 in the single-zeta basis, 16 channels, degrees to 4, two layers: by hand."""
    basis = Basis({"Hf": (0, 0, 1, 2), "O": (0, 1)})
    module = Network(ESPOptions(layers=2, parity=False), basis)
    norm = 2 * 16 + 4 * 16
    radial = 2 * 2 * 16 + (48 * 16 + 16 + 32) + (16 * 16 + 16 + 32) + (16 * 240 + 240)
    orders = [2 * (n * 48) * (n * 16) for n in (4, 3, 2, 1)]  # real and imaginary parts
    attention = 2 * 16 + 64  # what the extra scalars are for: scores, gates
    # Of the messages of the first layer order 0 alone is there.
    order_0 = (5 * 48 + 1) * (5 * 16 + attention) + (5 * 16 + 1) * 5 * 32
    others = sum(orders) + sum(2 * (n * 16) * (n * 32) for n in (4, 3, 2, 1))
    scores = 2 * 16 + 2 * 16
    feed_forward = (5 * 16 * 64 + 64) + (16 + 1) * 256 + (5 * 64 * 16 + 16)
    node = 2 * norm + radial + order_0 + scores + (5 * 32 * 16 + 16) + feed_forward
    first_of_edges = (5 * 48 + 1) * (5 * 16 + 64) + sum(orders)
    edge = 2 * norm + radial + first_of_edges + (5 * 16 * 16 + 16) + feed_forward
    # Of 2 s, p and d: 2 x 2, p x p and d x d hold a scalar each but the first four.
    n_scalars, n_irreps = 4 + 1 + 1, 4 + 2 * 2 * 2 + 3 + 2 * 3 + 5
    heads = 2 * (16 * n_irreps + n_scalars)
    embeddings = 2 * 16 + 16 * 16
    actual = sum(p.numel() for p in module.parameters())
    assert actual == 2 * (node + edge) + others + heads + embeddings


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


def test_a_bond_cutoff_beyond_the_neighbours_is_refused():
    with pytest.raises(ValueError, match=r"bond_cutoff: 1.8 Å, .* at most half of .*, 1\.7 Å"):
        make_network(bond_cutoff=1.8)


def test_an_unknown_element_is_named():
    sample = make_structure(Basis({"Hf": (0,), "H": (0,)}))
    with pytest.raises(ValueError, match="hold H, but the network has a basis for O, Hf"):
        make_network()(made_up.collate_samples(sample))


def test_too_low_a_degree_is_refused():
    with pytest.raises(ValueError, match=r"model\.lmax is 2, .* at least 6"):
        make_network(UNEQUAL, lmax=2)
