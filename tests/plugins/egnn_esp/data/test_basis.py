"""Layout of blocks and their coupling. Oracle for rotations and 3j symbols: e3nn."""

import numpy as np
import pytest
import torch
from e3nn import o3

from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.model.coupling import Coupling, compute_change_of_basis

HAFNIA = Basis({"O": (0, 1), "Hf": (0, 0, 1, 2)})
DOUBLE = Basis({"Hf": (0, 0, 0, 1, 1, 2, 2, 3), "O": (0, 0, 1, 1, 2)})
SHELLS = [HAFNIA.common, DOUBLE.common, (0,), (1, 3)]


pytestmark = pytest.mark.usefixtures("double_precision")


def test_the_common_layout_holds_the_most_shells_of_each_degree():
    basis = Basis({"Si": (0, 0, 0, 2), "C": (0, 1, 1)})
    assert basis.common == (0, 0, 0, 1, 1, 2)
    assert basis.n_common == 14
    assert basis.find_orbitals(6).tolist() == [0, 3, 4, 5, 6, 7, 8]
    assert basis.find_orbitals(14).tolist() == [0, 1, 2, 9, 10, 11, 12, 13]
    # In any order.
    basis = Basis({"O": (0, 1, 0, 1), "H": (0,)})
    assert basis.common == (0, 0, 1, 1)
    assert basis.find_orbitals(8).tolist() == [0, 2, 3, 4, 1, 5, 6, 7]


def test_hafnia_in_a_minimal_basis_has_100_outputs():
    """Oracle: the paper of Amorphous Hamiltonians (arXiv 2501.19110) has as many."""
    assert (HAFNIA.count_orbitals(72), HAFNIA.count_orbitals(8), HAFNIA.n_common) == (10, 4, 10)
    assert Coupling(HAFNIA.common).n_coupled == 100
    assert HAFNIA.elements == (8, 72)


@pytest.mark.parametrize("basis", [HAFNIA, DOUBLE], ids=["single", "double"])
def test_padding_is_undone_and_masked(basis):
    rng = np.random.default_rng(0)
    receivers, senders = rng.choice(basis.elements, size=(2, 30))
    sizes = basis.count_orbitals_per_atom(receivers) * basis.count_orbitals_per_atom(senders)
    entries = rng.normal(size=sizes.sum())
    blocks = basis.pad(entries, receivers, senders)
    mask = basis.mask(receivers, senders)
    assert mask.shape == blocks.shape
    np.testing.assert_array_equal(basis.unpad(blocks, receivers, senders), entries)
    np.testing.assert_array_equal(blocks != 0, mask)
    first = entries[: sizes[0]].reshape(basis.count_orbitals(receivers[0]), -1)
    at = np.ix_(basis.find_orbitals(receivers[0]), basis.find_orbitals(senders[0]))
    np.testing.assert_array_equal(blocks[0][at], first)


@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(4))
def test_the_change_is_orthogonal_and_made_of_3j_symbols(a, b):
    change = compute_change_of_basis(a, b)
    np.testing.assert_allclose(change @ change.T, np.eye(len(change)), atol=1e-13)
    symbols = [
        np.sqrt(2 * L + 1) * o3.wigner_3j(a, b, L, dtype=torch.float64).flatten(0, 1).numpy()
        for L in range(abs(a - b), a + b + 1)
    ]
    np.testing.assert_allclose(change, np.concatenate(symbols, axis=1), atol=1e-12)


@pytest.mark.parametrize("shells", SHELLS, ids=str)
def test_coupled_components_rotate_by_degree(shells):
    coupling = Coupling(shells)
    blocks = coupling.make_blocks().flatten(1)
    torch.manual_seed(6)
    rotation = o3.rand_matrix(dtype=torch.float64)

    def turned(degrees):
        return o3.Irreps([(1, (degree, 1)) for degree in degrees]).D_from_matrix(rotation)

    coupled = torch.randn(1, coupling.n_coupled, dtype=torch.float64)
    D = turned(shells)
    rotated = coupled @ turned(coupling.irreps).T @ blocks
    expected = D @ (coupled @ blocks).view_as(D) @ D.T
    torch.testing.assert_close(rotated.view_as(D), expected, rtol=0, atol=1e-12)
