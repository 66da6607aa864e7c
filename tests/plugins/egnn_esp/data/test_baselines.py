"""Oracles: the table of Slater and Koster, overlaps that CP2K calculated, symmetry."""

import numpy as np
import pytest
import torch

from pipeline_atoms.potential.potential import compute_edge_vectors
from pipeline_egnn_esp.data.baselines import TwoCentre, fit_two_centre
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.samples import Labelled
from plugins.egnn_esp.made_up import collate_samples, pack_grid, sample
from plugins.egnn_esp.reference import read_shipped

CUTOFF = 5.0
BASIS = Basis({"C": (0, 1), "Si": (0, 0, 1)})


def draw_polynomials(seed):
    """Cubic integrals of the distance, which splines hold exactly, by elements and by name."""
    rng = np.random.default_rng(seed)
    return lambda name: np.polynomial.Polynomial(rng.normal(size=4), [0, CUTOFF], [-1, 1])


def build_slater_koster(graph, basis, seed=0):
    """Blocks of the table of Slater and Koster (1954) for s and p shells, Table I there."""
    make, integrals = draw_polynomials(seed), {}
    shells = dict(zip(basis.elements, basis.shells.values(), strict=True))
    numbers, positions = graph["atomic_numbers"], graph["positions"]
    blocks = np.full((len(graph["edge_index"]), basis.n_common, basis.n_common), np.nan)
    for edge, ((i, j), shift) in enumerate(
        zip(graph["edge_index"], graph["edge_shift"], strict=True)
    ):
        vector = positions[j] + shift @ graph["cell"] - positions[i]
        d = np.linalg.norm(vector)
        y, z, x = vector[[1, 2, 0]] / d
        cosines = np.array([y, z, x])
        own, other = int(numbers[i]), int(numbers[j])

        def integral(a, b, kind, own=own, other=other, d=d):
            # Named by the lower pair first, which has the vector from the one to the other.
            first, second = (own, a), (other, b)
            key = (*min(first, second), *max(first, second), kind)
            if key not in integrals:
                integrals[key] = make(key)
            return integrals[key](d)

        rows = []
        for a, la in enumerate(shells[own]):
            row = []
            for b, lb in enumerate(shells[other]):
                if la == lb == 0:
                    block = np.array([[integral(a, b, "ss")]])
                elif la == 0:
                    block = cosines[None] * integral(a, b, "sp")
                elif lb == 0:  # E(x, s) = -l (spσ)
                    block = -cosines[:, None] * integral(a, b, "sp")
                else:
                    along = np.outer(cosines, cosines)
                    block = along * integral(a, b, "pp0") + (np.eye(3) - along) * integral(
                        a, b, "pp1"
                    )
                row.append(block)
            rows.append(np.concatenate(row, 1))
        places = np.ix_(basis.find_orbitals(own), basis.find_orbitals(other))
        blocks[edge][places] = np.concatenate(rows)
    return blocks


def label_graph(graph, blocks, basis=BASIS, dtype=torch.float64):
    result = collate_samples(graph)
    result["edge_blocks"] = torch.from_numpy(blocks).to(dtype)
    n = basis.n_common
    result["node_blocks"] = torch.zeros(len(graph["positions"]), n, n, dtype=dtype)
    return result


@pytest.mark.slow
def test_a_model_of_slater_and_koster_is_reproduced_in_other_structures():
    graphs = [pack_grid(["C", "Si"], (3, 3, 3), CUTOFF, seed=s, spacing=1.7) for s in range(3)]
    batches = [label_graph(graph, build_slater_koster(graph, BASIS)) for graph in graphs]
    model = fit_two_centre(BASIS, CUTOFF, batches[:2])
    expected = batches[2]["edge_blocks"].nan_to_num(0)
    error = (model.predict_edge_blocks(batches[2]) - expected).abs().amax((1, 2))
    seen = (
        compute_edge_vectors(batches[2]).norm(dim=1) > 1.45
    )  # the closest pairs are closer than before
    assert float(seen.double().mean()) > 0.95
    assert float(expected.abs().max()) > 1
    assert float(error[seen].max()) < 1e-5
    assert float(error.max()) < 1e-2


@pytest.mark.parametrize("side", [1, -1])
def test_one_distance_from_one_side_is_kept_and_far_pairs_have_nothing(side):
    def pair(length):
        positions = [np.zeros(3), side * length * np.array([0.9, 0.3, -0.1]) / np.sqrt(0.91)]
        graph = sample(["C", "Si"], positions, np.zeros((3, 3)), CUTOFF, pbc=(False, False, False))
        return label_graph(graph, build_slater_koster(graph, BASIS))

    near = pair(1.5)
    model, label = fit_two_centre(BASIS, CUTOFF, [near]), near["edge_blocks"].nan_to_num(0)
    largest = float(label.abs().max())
    torch.testing.assert_close(model.predict_edge_blocks(near), label, rtol=0, atol=1e-6 * largest)
    for length, bound in ((2.0, 2.0), (3.5, 0.05), (4.9, 1e-3)):
        assert float(model.predict_edge_blocks(pair(length)).abs().max()) < bound * largest


def make_frame_batch(matrix, cutoff, quantity):
    """A frame as a batch with labels."""
    atoms = matrix.structure
    symbols = ["Hf" if z == 72 else "O" for z in atoms.atomic_numbers]
    graph = sample(symbols, atoms.positions, atoms.cell, cutoff)
    result = collate_samples(graph)
    blocks = Labelled(matrix, 0.0, graph["edge_index"], graph["edge_shift"]).make_blocks(quantity)
    result["node_blocks"], result["edge_blocks"] = map(torch.from_numpy, blocks)
    return result


@pytest.mark.slow
def test_overlaps_of_cp2k_depend_on_distances_alone():
    """Shells s, p and d: what is left over is the error of the splines, and float32."""
    frames = [make_frame_batch(read_shipped(run, "000"), 7.0, "overlap") for run in ("cubic-2000K",
              "monoclinic-2000K", "tetragonal-2000K", "cubic-0600K")]  # fmt: skip
    basis = read_shipped("cubic-2000K").basis
    model = fit_two_centre(basis, 7.0, frames[:3])
    label = frames[3]["edge_blocks"]
    error = (model.predict_edge_blocks(frames[3]) - label).nan_to_num(0).abs()
    assert float(label.nan_to_num(0).abs().max()) > 0.2
    assert float(error.max()) < 2e-3
    assert float(error.mean()) < 1e-3 * float(label.nan_to_num(0).abs().mean())
    own = (
        model.predict_node_blocks(frames[3]["atomic_numbers"]) - frames[3]["node_blocks"]
    ).nan_to_num(0)
    assert float(own.abs().max()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blocks_of_reverse_edges_are_transposed_to_the_last_bit(dtype):
    graph = pack_grid(["C", "Si"], (3, 2, 2), CUTOFF)
    model = TwoCentre(BASIS, CUTOFF).to(dtype)
    whole = label_graph(graph, build_slater_koster(graph, BASIS))
    model.double().fit([whole])
    model.to(dtype)
    blocks = model.predict_edge_blocks(whole)
    assert blocks.dtype == dtype
    assert bool(blocks.any())
    assert torch.equal(blocks, blocks[whole["reverse_edge"]].mT)


def test_own_blocks_are_the_spherical_mean_of_an_element():
    graph = pack_grid(["C", "Si"], (2, 2, 2), CUTOFF)
    whole = label_graph(graph, build_slater_koster(graph, BASIS))
    rng = np.random.default_rng(3)
    n = BASIS.n_common
    own = rng.normal(size=(8, n, n))
    own += own.swapaxes(1, 2)
    mask = BASIS.mask(graph["atomic_numbers"], graph["atomic_numbers"])
    own[~mask] = np.nan
    whole["node_blocks"] = torch.from_numpy(own)
    actual = (
        fit_two_centre(BASIS, CUTOFF, [whole]).predict_node_blocks(torch.tensor([14, 6])).numpy()
    )
    silicon, carbon = (own[graph["atomic_numbers"] == z].mean(0) for z in (14, 6))
    expected = np.zeros((2, n, n))
    expected[0, 0, 0], expected[0, 1, 1] = silicon[0, 0], silicon[1, 1]
    expected[0, 0, 1], expected[0, 1, 0] = silicon[0, 1], silicon[1, 0]
    expected[0, 2:, 2:] = np.eye(3) * np.trace(silicon[2:, 2:]) / 3
    expected[1, 0, 0] = carbon[0, 0]
    expected[1, 2:, 2:] = np.eye(3) * np.trace(carbon[2:, 2:]) / 3
    np.testing.assert_allclose(actual, expected, atol=1e-12)
