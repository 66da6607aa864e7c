"""What the paper says of its network. Oracles: rotations, and its number of parameters."""

import torch

from painn.network import PaiNN


def make_star(vectors):
    """Return one atom with neighbours at these places, (n, 3), which see it alone."""
    n = len(vectors)
    out = torch.stack([torch.zeros(n, dtype=torch.long), torch.arange(1, n + 1)], 1)
    batch = {
        "atomic_numbers": torch.full((n + 1,), 8),
        "edge_index": torch.cat([out, out.flip(1)]),
        "atom_sample": torch.zeros(n + 1, dtype=torch.long),
        "atom_offsets": torch.tensor([0, n + 1]),
    }
    return batch, torch.cat([vectors, -vectors])


def make_network(layers=2):
    torch.manual_seed(0)
    return PaiNN(features=8, layers=layers, n_radial=6, cutoff=4.0).double()


def test_it_has_the_size_of_the_paper():
    n = sum(p.numel() for p in PaiNN(128, 3, 20, 5.0).parameters())
    assert round(n / 1e6, 1) == 0.6  # 600,000, as the paper counts


def test_vectors_turn_with_the_structure_and_scalars_do_not():
    vectors = torch.randn(4, 3, dtype=torch.float64, generator=torch.manual_seed(1))
    turn, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    network = make_network()
    with torch.no_grad():
        s, v = network.compute_features(*make_star(vectors))
        turned_s, turned_v = network.compute_features(*make_star(vectors @ turn.T))
    torch.testing.assert_close(turned_s, s)
    torch.testing.assert_close(turned_v, torch.einsum("xy,iyf->ixf", turn, v))
    assert v.abs().max() > 1e-3


def test_one_message_tells_angles_apart():
    """Distances alone would not: what vectors are for, as the paper argues."""
    bent = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    straight = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    network = make_network(layers=1)
    with torch.no_grad():
        energies = [network.energies(*make_star(v))["energy"] for v in (bent, straight)]
    assert (energies[0] - energies[1]).abs() > 1e-4


def test_vectors_that_vanish_by_symmetry_have_derivatives():
    axes = torch.eye(3, dtype=torch.float64)
    batch, vectors = make_star(torch.cat([axes, -axes]))
    vectors.requires_grad_()
    energy = make_network().energies(batch, vectors)["energy"].sum()
    (gradient,) = torch.autograd.grad(energy, vectors, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), vectors)
    assert second.isfinite().all()
