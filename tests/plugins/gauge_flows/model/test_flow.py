"""Whole flows: inverse, determinant, volumes, and what the backward pass keeps.

The oracles are finite differences, periodic copies of a configuration, and torch's own autograd.
"""

import pytest
import torch

from pipeline_gauge_flows.data.lattice import Lattice
from plugins.gauge_flows.small import draw_links, jacobian, make_flow

MEMORY = ["graph", "recompute"]
BLOCKS = [("direction", 2), ("location", 2)]
MIXED = {
    "plaquette": BLOCKS,
    "learned": BLOCKS,
    "residual": [("direction", 1), ("m4", 1)],
}


def list_gradients(flow):
    parameters = [p.grad for p in flow.parameters()]
    assert all(g is not None for g in parameters)
    return torch.cat([g.flatten() for g in parameters])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MIXED)
def test_the_determinant_is_that_of_the_whole_map(kind):
    extents = (4, 4) if kind == "residual" else (2, 2)
    lattice = Lattice(extents, 2)
    flow, links = make_flow(kind, lattice, MIXED[kind]), draw_links(lattice, 1)
    with torch.no_grad():
        dense = jacobian(lambda u: flow(u)[0], links)
        log_det = flow(links)[1][0]
    torch.testing.assert_close(torch.linalg.slogdet(dense).logabsdet, log_det, rtol=1e-7, atol=1e-7)


def repeat_links(links, lattice, larger):
    """Return periodic copies of a configuration."""
    table = [
        int(torch.tensor(c).remainder(torch.tensor(lattice.extents)) @ compute_strides(lattice))
        for c in larger.coordinates.tolist()
    ]
    return links[:, :, table]


def compute_strides(lattice):
    extents = torch.tensor([*lattice.extents[1:], 1])
    return extents.flip(0).cumprod(0).flip(0)


@pytest.mark.parametrize("kind", MIXED)
def test_a_flow_has_its_inverse_and_acts_on_any_volume(kind):
    """Copies of a configuration are mapped to copies; log-determinants add up."""
    lattice, larger = Lattice((4, 4), 3), Lattice((8, 12), 3)
    flow, links = make_flow(kind, lattice, MIXED[kind]).requires_grad_(False), draw_links(lattice)
    moved, log_det = flow(links)
    back, opposite = flow.inverse(moved)
    torch.testing.assert_close(back, links, rtol=0, atol=1e-10)
    torch.testing.assert_close(opposite, -log_det, rtol=1e-10, atol=1e-10)
    mapped, total = flow.move_to(larger)(repeat_links(links, lattice, larger))
    torch.testing.assert_close(mapped, repeat_links(moved, lattice, larger), rtol=0, atol=1e-12)
    torch.testing.assert_close(total, 6 * log_det, rtol=1e-12, atol=1e-12)
    assert flow.move_to(lattice) is flow


def test_float32_links_have_double_determinants():
    lattice = Lattice((4, 4), 3)
    flow, links = make_flow("learned", lattice, BLOCKS).requires_grad_(False), draw_links(lattice)
    moved, log_det = flow(links)
    single, rough = flow.float()(links.to(torch.complex64))
    assert (single.dtype, rough.dtype) == (torch.complex64, torch.float64)
    torch.testing.assert_close(single.to(moved.dtype), moved, rtol=0, atol=2e-5)
    torch.testing.assert_close(rough, log_det, rtol=1e-4, atol=1e-4)
    back, opposite = flow.inverse(single)
    torch.testing.assert_close(back.to(links.dtype), links, rtol=0, atol=2e-5)
    torch.testing.assert_close(opposite, -rough, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MIXED)
def test_what_is_computed_again_has_the_same_derivatives(kind):
    """Those of torch's autograd through all layers, by weights and by links."""
    lattice, by_memory = Lattice((4, 4), 3), {}
    for mode in MEMORY:
        flow = make_flow(kind, lattice, MIXED[kind], mode)
        links = draw_links(lattice).requires_grad_()
        moved, log_det = flow(links)
        shifted = moved.real.sin().sum((1, 2, 3, 4))
        (shifted * torch.tensor([1.0, 2.0]) + log_det).sum().backward()
        by_memory[mode] = moved.detach(), log_det.detach(), links.grad, list_gradients(flow)
    for ours, expected in zip(by_memory["recompute"], by_memory["graph"], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    assert all(map(torch.equal, by_memory["recompute"][:2], by_memory["graph"][:2]))


def count_kept_bytes(flow, links):
    """Return the bytes of all tensors that a forward pass keeps for the backward pass."""
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        moved, log_det = flow(links)
    weights = {p.untyped_storage().data_ptr() for p in flow.parameters()}
    del moved, log_det
    return sum(size for place, size in storages.items() if place not in weights)


def test_memory_does_not_grow_with_the_graphs_of_staple_networks():
    lattice = Lattice((4, 4), 3)
    links = draw_links(lattice, 16)
    sizes = {
        (memory, sweeps): count_kept_bytes(
            make_flow("learned", lattice, [("direction", sweeps)], memory), links
        )
        for memory in MEMORY
        for sweeps in (1, 5)
    }
    growth = {m: (sizes[m, 5] - sizes[m, 1]) / (16 * links.nbytes) for m in MEMORY}  # per layer
    assert growth["graph"] > 30 * growth["recompute"]
    assert growth["recompute"] == pytest.approx(1 / 4)  # the links that a layer moves
