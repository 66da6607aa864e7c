"""Ranks, each with the edges of its own atoms, some at a time, give what the network gives.

Oracles: the network on the whole structure at once; the spectrum of a repeated cell, which is that
of the cell at the k-points that fold onto its Gamma point; the kernel's account of the memory of a
process.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.dft.kpoints import monkhorst_pack

from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.testing.rank_threads import run_on_threads
from pipeline_egnn_esp.data.bands import compute_levels
from pipeline_egnn_esp.data.baselines import TwoCentre
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.cp2k_matrices import wrap_atoms
from pipeline_egnn_esp.data.matrices import BlockIndex, BlockMatrix, is_first
from pipeline_egnn_esp.inference.forward import predict_blocks
from pipeline_egnn_esp.inference.slots import assign_slots
from pipeline_egnn_esp.inference.tiling import Tiling
from pipeline_egnn_esp.model.scaling import ScaledNetwork, Sizes
from pipeline_kernels.halo import SelfTransport
from pipeline_kernels.partition import partition
from plugins.egnn_esp import made_up, reference
from plugins.egnn_esp.reference import assert_same_blocks, name_blocks
from processes import finish
from tiers import cover_pairs, exhaustive

BASIS = Basis({"H": (0,), "O": (0, 0, 1)})
CUTOFF = 3.0


def wrap_network(net):
    """Put tables that say something around a network."""
    two_centre, sizes = (kind(net.basis, net.cutoff) for kind in (TwoCentre, Sizes))
    module = ScaledNetwork(net, two_centre, sizes, uses_edges=True)
    torch.manual_seed(1)
    atoms, mirror, sign = torch.randn(two_centre.atoms.shape), two_centre._mirror, two_centre._sign
    two_centre.atoms.copy_(atoms + atoms.mT)
    tables = torch.randn(two_centre.tables.shape).double()
    two_centre.tables.copy_(tables + tables.transpose(0, 1)[..., mirror] * sign)
    edges = torch.rand(sizes.edges.shape).double() + 0.5
    sizes.edges.copy_(edges + edges.permute(1, 0, 2, 4, 3))
    atoms = torch.rand(sizes.atoms.shape).double() + 0.5
    sizes.atoms.copy_(atoms + atoms.mT)
    return module.double()


def make_slots(structure, cutoff, owners, transport):
    return assign_slots(build_domain(structure, cutoff, owners, transport))


def mark_first(sample):
    return is_first(*sample["edge_index"].T, sample["edge_shift"])


def mask_padding(sample, index):
    return torch.from_numpy(BASIS.mask(*sample["atomic_numbers"][index].T))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "parity", "n_ranks", "wrap"),
    cover_pairs([1, 2, 3], [True, False], [1, 2, 3], [lambda net: net, wrap_network]),
)
def test_parts_give_the_blocks_of_the_whole(layers, parity, n_ranks, wrap):
    sizes = {"attention_cutoff": 2.5 if layers == 2 else None, "bond_cutoff": 1.5}
    module = wrap(made_up.make_network(BASIS, CUTOFF, layers=layers, parity=parity, **sizes))
    sample = made_up.pack_grid(["O", "H", "H"], (6, 2, 1), CUTOFF)
    with torch.no_grad():
        whole = module(made_up.collate_samples(sample))
    structure, first = made_up.read_structure(sample), mark_first(sample)
    places = sample["positions"], sample["cell"], sample["pbc"], sample["edge_index"]
    owners = partition(*places, n_ranks, CUTOFF)

    def one(transport):
        slots = make_slots(structure, CUTOFF, owners, transport)
        return slots, predict_blocks(module, slots, 11)

    assert len(first) > 11 * n_ranks
    index, shift = sample["edge_index"], sample["edge_shift"]
    place, n_blocks = BlockIndex(index, shift), 0
    for slots, actual in run_on_threads(n_ranks, one):
        domain, kept = slots.domain, slots.first
        ends = domain.rows[domain.edge_index.numpy()[kept]]
        numbers = place.find(ends, domain.edge_shift.numpy()[kept])
        mask = mask_padding(sample, index[numbers])
        torch.testing.assert_close(
            actual.edges * mask, whole["edge_blocks"][numbers] * mask, rtol=1e-12, atol=1e-12
        )
        own = domain.rows[: domain.n_own]
        mask = mask_padding(sample, np.stack([own, own], axis=1))
        torch.testing.assert_close(
            actual.nodes * mask, whole["node_blocks"][own] * mask, rtol=1e-12, atol=1e-12
        )
        n_blocks += len(numbers)
    assert n_blocks == np.count_nonzero(first)


def test_a_rank_without_atoms_takes_part():
    sample = made_up.pack_grid(["O", "H", "H"], (3, 2, 1), CUTOFF)
    module = made_up.make_network(BASIS, CUTOFF)
    structure, owners = made_up.read_structure(sample), np.zeros(6, dtype=np.int64)

    def one(transport):
        return predict_blocks(module, make_slots(structure, CUTOFF, owners, transport), 20)

    full, empty = run_on_threads(2, one)
    assert len(full.edges) == np.count_nonzero(mark_first(sample))
    assert len(empty.edges) == len(empty.nodes) == 0


def predict_cell(net, structure):
    """Return the predicted Hamiltonian of a structure, beside an overlap of zeros."""
    n_atoms, cutoff = len(structure.positions), net.cutoff
    slots = make_slots(structure, cutoff, np.zeros(n_atoms, dtype=np.int64), SelfTransport())
    actual = predict_blocks(net, slots, 1000)
    own = np.arange(n_atoms)
    domain, first = slots.domain, slots.first
    ends = domain.edge_index.numpy()[first]
    atoms = np.concatenate([np.stack([own, own], axis=1), ends])
    shift = np.concatenate(
        [np.zeros((n_atoms, 3), dtype=np.int64), slots.domain.edge_shift.numpy()[slots.first]]
    )
    blocks = torch.cat([actual.nodes, actual.edges]).numpy()
    entries = net.basis.unpad(blocks, *structure.atomic_numbers[atoms].T)
    return BlockMatrix(structure, net.basis, atoms, shift, entries, np.zeros_like(entries))


def tile_matrix(matrix, repeat):
    """Return the tiling of a matrix into a cell whose atoms are wrapped."""
    one = matrix.structure
    atoms = Atoms(one.atomic_numbers, one.positions, cell=one.cell, pbc=one.pbc).repeat(repeat)
    straight = replace(
        one, atomic_numbers=atoms.numbers, positions=atoms.positions, cell=np.asarray(atoms.cell)
    )
    structure = wrap_atoms(straight)
    moves = (straight.positions - structure.positions) @ np.linalg.inv(structure.cell)
    return Tiling(matrix, repeat, structure, np.rint(moves).astype(np.int64))


def test_the_prediction_for_a_tiled_cell_is_the_tiled_prediction():
    net = made_up.make_network(BASIS, CUTOFF)
    sample = made_up.pack_grid(["O", "H", "H"], (3, 2, 1), CUTOFF)
    tiling = tile_matrix(predict_cell(net, made_up.read_structure(sample)), (2, 1, 3))
    assert tiling.moved.any()
    assert_same_blocks(
        predict_cell(net, tiling.structure), tiling.build_matrix(), "hamiltonian", 1e-12
    )


def test_a_tiled_overlap_has_the_folded_spectrum():
    """Levels of 1 x 2 x 1 cells at the Gamma point are those of the cell at k = 0 and k = 1/2."""
    matrix, repeat = reference.read_shipped("monoclinic-0600K"), (1, 2, 1)
    tiling = tile_matrix(matrix, repeat)
    # A Monkhorst-Pack grid of 2 is shifted by 1/4, that of the folded points is not.
    points = monkhorst_pack(repeat) - monkhorst_pack(repeat).min(axis=0)
    folded = np.sort(compute_levels(matrix, points).ravel())
    np.testing.assert_allclose(compute_levels(tiling.build_matrix()), folded, atol=1e-8)
    parts = [tiling.build_matrix(rows) for rows in (np.arange(5), np.arange(5, 24))]
    together = name_blocks(parts[0], "overlap") | name_blocks(parts[1], "overlap")
    assert together.keys() == name_blocks(tiling.build_matrix(), "overlap").keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "work"),
    [
        ({"channels": 8, "feed_forward_channels": 32, "parity": True}, 2**26),
        pytest.param({"channels": 4, "bond_cutoff": 2.5}, 2**27, marks=exhaustive),
    ],
)
def test_the_plan_says_what_is_measured(sizes, work):
    """The high-water mark of a process, as Linux keeps it, within a fifth of the plan."""
    shown = finish(["-m", "plugins.egnn_esp.peak_memory", json.dumps(sizes), work])
    planned_work, planned, measured = json.loads(shown)
    assert planned_work > work / 2  # several chunks
    if measured is None:
        pytest.skip("the system does not tell")
    assert measured == pytest.approx(planned, rel=0.2)
