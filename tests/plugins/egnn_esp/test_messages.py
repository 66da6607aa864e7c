"""What is left out of messages and heads changes nothing.

Oracles: the convolution of all features, zeros included; irreps put where the coupling has them.
"""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from pipeline_egnn_esp.basis import Basis
from pipeline_egnn_esp.heads import Heads
from pipeline_egnn_esp.maps import split_degrees
from pipeline_egnn_esp.network import Network
from pipeline_egnn_esp.options import ESPOptions
from plugins.egnn_esp import made_up

CUTOFF = 3.4
OXIDE = Basis({"Hf": (0, 0, 1), "O": (0, 1)})


def make_network(**options):
    sizes = {"channels": 8, "lmax": 2, "layers": 3, "radial_functions": 6, "cutoff": CUTOFF}
    torch.manual_seed(0)
    return Network(ESPOptions(**sizes | options), OXIDE).double()


def list_calls(network):
    """Return messages of all blocks, by layer, with what each is called with in a prediction."""
    blocks = zip(network.node_blocks, network.edge_blocks, strict=True)
    parts = [part for node, edge in blocks for part in (node.attention.messages, edge.messages)]
    calls = []
    hooks = [part.register_forward_pre_hook(lambda *call: calls.append(call)) for part in parts]
    network(made_up.collate_samples(made_up.pack_grid(["Hf", "O"], (2, 2, 1), CUTOFF)))
    for hook in hooks:
        hook.remove()
    return calls


def convolve_all(messages, x, e, edges):
    weights, bias = messages.linear()
    tables = messages._make_tables(x, e, edges)
    return messages._convolve(tables, edges, weights, bias, messages.radial(edges))


def differentiate(function, messages, x, e, edges):
    """Return results and derivatives by weights and by scalars; zeros need none."""
    x, e = (part.detach().requires_grad_() for part in (x, e))
    results = function(x, e, edges)
    total = sum(y.sin().sum() for y in results)
    by_x, by_e, *others = torch.autograd.grad(
        total, [x, e, *messages.parameters()], materialize_grads=True, allow_unused=True
    )
    n = messages.inputs[0].natural
    return results, [by_x[:, 0, :n], by_e[:, 0, :n], *others]


@pytest.mark.parametrize("parity", [False, True])
@pytest.mark.parametrize("reach", [None, CUTOFF / 2], ids=["lengths", "densities"])
def test_scalars_are_not_turned(parity, reach):
    calls = list_calls(make_network(parity=parity, bond_cutoff=reach))
    n_scalar = [sum(messages.are_scalars) for messages, _ in calls]
    assert n_scalar == ([2, 0] if reach else [3, 1]) + [0] * 4
    for messages, inputs in calls[:2]:
        mine = differentiate(messages, messages, *inputs)
        theirs = differentiate(partial(convolve_all, messages), messages, *inputs)
        assert_close(mine, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("parity", [False, True])
def test_blocks_consist_of_irreps(parity):
    options = ESPOptions(channels=8, lmax=3, parity=parity)
    channels, basis = options.split(8), Basis({"Hf": (0, 0, 1), "O": (0, 1)})
    torch.manual_seed(0)
    heads = Heads(3, channels, channels, basis, parity=parity).double()
    head, coupling = heads.edges, heads.coupling
    torch.nn.init.normal_(head.bias)
    x = torch.randn(5, 16, 8, dtype=torch.float64)
    coupled = torch.zeros(5, coupling.n_coupled, dtype=torch.float64)
    for degree, part in enumerate(split_degrees(x)[: coupling.lmax + 1]):
        irreps = part @ head._join(degree)
        if degree == 0:
            irreps = irreps + head.bias
        kinds = coupling.find_unnatural(degree) & parity
        rows = coupling.find_rows(degree)[kinds.int().argsort(stable=True)]
        coupled[:, rows.T] = irreps
    assert_close(head(x), coupling.uncouple(coupled), rtol=0, atol=1e-13)
    assert head(x[:0]).shape == (0, basis.n_common, basis.n_common)
