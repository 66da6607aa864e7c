"""Tensor products on random graphs, with weights of each edge, or mapped from what edges share."""

import pytest
import torch

from kernels.contract import Call
from pipeline_kernels.equivariant.mixed_product import Graph
from pipeline_kernels.equivariant.tensor_product import ProductPlan, reference, tensor_product
from pipeline_kernels.message import Segments

FIRST = ProductPlan.of("0e", 3, "0e + 1o + 2e + 3o")
SECOND = ProductPlan.of("0e + 1o", 3, "0e + 1o + 2e + 3o")
PLANS = {
    "second layer": SECOND,
    "first layer": FIRST,
    "last layer": ProductPlan.of("0e + 1o + 2e", 2, "0e"),
    "pseudovectors": ProductPlan.of("1o + 0o + 1e", 2, "0e + 0o + 1e + 1o + 2o"),
    "twice the same": ProductPlan.of("1o + 1o", 1, "1e + 0e"),
    "high degrees": ProductPlan.of("4e + 0o", 4, "3e + 4o"),
}


def represent(irreps, turn):
    """Return the matrix by which features turn, of e3nn; an inversion may be in it."""
    o3 = pytest.importorskip("e3nn.o3")
    return torch.block_diag(*(o3.Irrep(str(irrep)).D_from_matrix(turn) for irrep in irreps))


def draw_product(generator, plan, n_nodes=9, n_edges=40, channels=3, ordered=False):
    """Return a product on a graph whose last node receives nothing; plans may be named."""
    plan = PLANS.get(plan, plan)
    senders, receivers = torch.randint(max(1, n_nodes), (2, n_edges), generator=generator)
    receivers = receivers.sort().values if ordered else receivers
    shapes = [
        (n_nodes, plan.dim_in, channels),
        (n_edges, plan.dim_sh),
        (n_edges, plan.n_paths, channels),
    ]
    operands = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    ends = [Segments.of(senders, n_nodes), Segments.of(receivers, n_nodes + 1)]
    return Call(tensor_product, multiply_plainly, operands, [*ends, plan])


def multiply_plainly(h, Y, w, senders, receivers, plan):
    """The formula."""
    ends = senders.index, receivers.index
    return reference.product(h, Y, w, ends, receivers.n_segments, plan)


def draw_graph(n_nodes, n_pairs, n_alone=2, ordered=False, generator=None):
    """Return edges of pairs and edges alone, in any order or by receiver; two nodes have none."""
    generator = generator or torch.Generator().manual_seed(0)
    ends = torch.randint(max(1, n_nodes), (2, n_pairs + n_alone), generator=generator)
    both = torch.cat([ends, ends[:, :n_pairs].flip(0)], 1)
    row = torch.cat([torch.arange(n_pairs + n_alone), torch.arange(n_pairs)])
    order = both[1].argsort() if ordered else torch.randperm(len(row), generator=generator)
    senders, receivers = both[:, order]
    return Graph.of(
        Segments.of(senders, n_nodes),
        Segments.of(receivers, n_nodes + 2),
        Segments.of(row[order], n_pairs + n_alone),
    )


def draw_mixed(plan, graph, channels, dtype=torch.float64, n_features=5, generator=None):
    """Return h, Y, the features x of rows of the weights, and the map A of these to weights."""
    generator = generator or torch.Generator().manual_seed(1)
    shapes = [
        (graph.senders.n_segments, plan.dim_in, channels),
        (graph.senders.n_elements, plan.dim_sh),
        (graph.rows.n_segments, n_features),
        (n_features, plan.n_paths * channels),
    ]
    return [torch.randn(s, generator=generator, dtype=dtype) for s in shapes]


def multiply_all(h, Y, x, A, graph, plan):
    """Compute `mixed_product` with the weights of all edges in memory."""
    w = (x @ A)[graph.rows.index].unflatten(1, (plan.n_paths, h.shape[2]))
    return tensor_product(h, Y, w, graph.senders, graph.receivers, plan)


def weigh_all(h, Y, x, weigh, senders, receivers, plan):
    """Compute `multiply_in_parts` with the weights of all edges in memory."""
    w = weigh(x).unflatten(1, (plan.n_paths, h.shape[2]))
    return tensor_product(h, Y, w, senders, receivers, plan)
