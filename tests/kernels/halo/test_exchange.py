"""Several ranks compute what one computes.

Oracle: a network of three layers written without any exchange, on the whole graph in one process,
and autograd's derivatives of it. The ranks are processes with gloo that run this file; one
launch works through all cases, on 2, 3 and 4 of them.
"""

import math
import sys
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import distributed as dist

from pipeline_kernels.halo import (
    HaloPlan,
    SelfTransport,
    ThroughCpu,
    TorchTransport,
    exchange,
    start,
)
from pipeline_kernels.message import Segments, segment_sum
from processes import finish, fork

N_RANKS = 4
N_NODES, N_FEATURES, N_LAYERS = 30, 5, 3
CASES = ["random", "contiguous", "no nodes on the last", "no nodes on the first", "two strangers"]
CASES += ["one way", "hardly any edges", "no edges"]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
FEATURES = [(), (3,), (2, 5), (0,)]
THROUGH_CPU = 3  # so many ranks exchange rows of each dtype by copies
TOLERANCES = {"outputs": 1e-12, "slope": 1e-10, "by x": 1e-10, "by positions": 1e-10}


def split_graph(case, n_parts):
    """Return owners `(n_nodes,)` and edges `(n_edges, 2)`."""
    generator = torch.Generator().manual_seed(CASES.index(case))
    n_edges = {"hardly any edges": 4, "no edges": 0}.get(case, 150)
    edges = torch.randint(N_NODES, (n_edges, 2), generator=generator)
    owners = torch.randint(n_parts, (N_NODES,), generator=generator)
    if case == "contiguous":
        owners = torch.arange(N_NODES) * n_parts // N_NODES
    elif case.startswith("no nodes"):
        owners = owners % (n_parts - 1) + (case == "no nodes on the first")
    receivers, senders = owners[edges].unbind(1)
    if case == "two strangers":
        edges = edges[~((receivers + senders == 1) & (receivers != senders))]
    elif case == "one way":
        edges = edges[receivers >= senders]
    return owners, edges


def make_inputs(n_edges):
    """Return features and positions of nodes, shifts of edges, and weights."""
    generator = torch.Generator().manual_seed(7)
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    shapes = [(N_FEATURES, N_FEATURES), (N_FEATURES, N_FEATURES), (3, N_FEATURES), (N_FEATURES, 1)]
    weights = [0.5 * normal(*shape) for _ in range(N_LAYERS) for shape in shapes]
    return normal(N_NODES, N_FEATURES), normal(N_NODES, 3), 0.3 * normal(n_edges, 3), weights


def attend(x, shapes, edges, n_interior, weights, begin):
    """Attention over incoming edges, which depends on where their ends are."""
    of_receiver, of_sender, of_shape, attention = weights
    request = begin(x)

    def messages(rows, part):
        h = (rows @ of_sender)[edges[part, 1]] + shapes[part] @ of_shape
        return h, torch.exp(torch.tanh((h * x[edges[part, 0]]) @ attention))

    interior = messages(x, slice(n_interior))
    boundary = messages(request.wait(), slice(n_interior, None))
    values, scores = map(torch.cat, zip(interior, boundary, strict=True))
    receivers = edges[:, 0]
    total = x.new_zeros(len(x), 1).index_add(0, receivers, scores)
    summed = torch.zeros_like(x).index_add(0, receivers, scores / total[receivers] * values)
    return torch.tanh(x @ of_receiver + summed)


def compute_results(x, positions, shifts, weights, edges, n_interior, begin, sent=lambda: 0):
    """Return outputs, forces, and gradients of a loss that has both, of the rows given."""
    x, positions, *weights = (t.clone().requires_grad_() for t in (x, positions, *weights))
    ends = begin(positions).wait()[edges[:, 1]] - positions[edges[:, 0]] + shifts
    shapes, h = torch.tanh(ends), x
    for number in range(N_LAYERS):
        h = attend(h, shapes, edges, n_interior, weights[4 * number : 4 * number + 4], begin)
    after_forward = sent()
    [slope] = torch.autograd.grad((h**3).sum(), positions, create_graph=True)
    after_forces = sent()
    loss = (h**2).sum() + (slope**2).sum()
    gradients = torch.autograd.grad(loss, [x, positions, *weights])
    rows = {"outputs": h, "slope": slope, "by x": gradients[0], "by positions": gradients[1]}
    rows = {name: tensor.detach() for name, tensor in rows.items()}
    return rows | {"by weights": gradients[2:], "bytes": (after_forward, after_forces)}


def make_serial(edges):
    def begin(x):
        return SimpleNamespace(wait=lambda: x)

    return compute_results(*make_inputs(len(edges)), edges, len(edges), begin)


def run_one_rank(owners, edges, transport):
    plan = HaloPlan.of(owners, edges, transport.rank, transport.size)
    x, positions, shifts, weights = make_inputs(len(edges))
    begin, before = partial(start, plan=plan, transport=transport), transport.bytes_sent
    rows = torch.full((len(owners),), -1)
    rows[torch.cat([plan.own, plan.halo])] = torch.arange(plan.n_own + plan.n_halo)
    mine = owners[edges] == transport.rank
    interior, boundary = mine.all(1), mine[:, 0] & ~mine[:, 1]
    ids = torch.cat([interior.nonzero()[:, 0], boundary.nonzero()[:, 0]])
    parts = x[plan.own], positions[plan.own], shifts[ids], weights

    def sent():
        return transport.bytes_sent - before

    return compute_results(*parts, rows[edges[ids]], int(interior.sum()), begin, sent)


def draw_small_integers(features, dtype):
    """Rows of all nodes, exact in every dtype."""
    shape = (N_NODES, *features)
    return (torch.arange(math.prod(shape)) % 251).reshape(shape).to(dtype)


def run_each_dtype(owners, edges, transport):
    """Return rows, their gradients where rank `r` weighs its rows by `r + 1`, and bytes sent."""
    plan, outcomes = HaloPlan.of(owners, edges, transport.rank, transport.size), []
    for dtype, features in product(DTYPES, FEATURES):
        x = draw_small_integers(features, dtype)[plan.own].requires_grad_()
        before = transport.bytes_sent
        first, second = start(x, plan, transport), start(2 * x.detach(), plan, transport)
        doubled, rows = second.wait(), first.wait()
        sent = transport.bytes_sent - before
        rows.backward(torch.full_like(rows, transport.rank + 1))
        returned = transport.bytes_sent - before - sent
        outcomes.append((rows.detach(), doubled, x.grad, sent, returned))
    return outcomes


def open_gloo_transports(rank, folder):
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=N_RANKS)
    for n in range(2, N_RANKS + 1):
        some = dist.new_group(range(n))
        if rank < n:
            yield TorchTransport(some if n < N_RANKS else None)
    dist.destroy_process_group()


def run_rank(transports, folder):
    outcomes = {}
    for transport in transports:
        n = transport.size
        outcomes |= {
            f"{case} {n}": run_one_rank(*split_graph(case, n), transport) for case in CASES
        }
        carrier = ThroughCpu(transport) if n == THROUGH_CPU else transport
        outcomes[f"dtypes {n}"] = run_each_dtype(*split_graph("random", n), carrier)
    torch.save(outcomes, folder / f"{transport.rank}.pt")


def run_gloo(folder):
    segment_sum(torch.zeros(1), Segments.of(torch.tensor([0]), 1))  # the first call imports
    sys.exit(fork(lambda rank: run_rank(open_gloo_transports(rank, folder), folder), N_RANKS))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Results of each rank."""
    folder = tmp_path_factory.mktemp("gloo")
    # To load compiled code takes longer than all exchanges.
    finish([__file__, folder], GLOO_SOCKET_IFNAME="lo", NUMBA_DISABLE_JIT="1")
    return [torch.load(folder / f"{rank}.pt") for rank in range(N_RANKS)]


def close(ours, expected, tolerance):
    """Compares with the largest element as the measure."""
    assert ours.dtype == expected.dtype == torch.float64
    torch.testing.assert_close(
        ours, expected, rtol=0, atol=tolerance * max(1, expected.abs().max())
    )


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("case", CASES)
def test_distributed_equals_serial(outcomes, case, n):
    owners, edges = split_graph(case, n)
    expected, parts = make_serial(edges), [rank[f"{case} {n}"] for rank in outcomes[:n]]
    order = torch.argsort(owners, stable=True).argsort()  # from rank after rank to node after node
    for name, tolerance in TOLERANCES.items():
        close(torch.cat([part[name] for part in parts])[order], expected[name], tolerance)
        moves = case != "no edges" or name in ("outputs", "by x")
        assert bool(expected[name].abs().max() > 0.1) == moves
    summed = [sum(shares) for shares in zip(*(p["by weights"] for p in parts), strict=True)]
    for gradient, whole in zip(summed, expected["by weights"], strict=True):
        close(gradient, whole, 1e-10)


def list_needed(owners, edges):
    """Return pairs of a rank and a node of its halo, by definition."""
    pairs = {(int(owners[i]), int(j)) for i, j in edges}
    return {(rank, node) for rank, node in pairs if owners[node] != rank}


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("case", CASES)
def test_bytes_are_those_of_the_plan(outcomes, case, n):
    owners, edges = split_graph(case, n)
    pairs = list_needed(owners, edges)
    x_bytes, position_bytes = 8 * N_FEATURES, 8 * 3
    for rank in range(n):
        plan = HaloPlan.of(owners, edges, rank, n)
        sent = sum(int(owners[node]) == rank for _, node in pairs)
        received = sum(to == rank for to, _ in pairs)
        assert (plan.n_sent, plan.n_halo) == (sent, received)
        forward = sent * (N_LAYERS * x_bytes + position_bytes)
        # The features that enter the first layer do not depend on positions.
        backward = received * ((N_LAYERS - 1) * x_bytes + position_bytes)
        assert outcomes[rank][f"{case} {n}"]["bytes"] == (forward, forward + backward)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_dtype_and_shape(outcomes, n):
    owners, edges = split_graph("random", n)
    pairs = list_needed(owners, edges)
    for rank in range(n):
        own = [node for node in range(N_NODES) if owners[node] == rank]
        halo = sorted((int(owners[node]), node) for to, node in pairs if to == rank)
        weights = [rank + 1 + sum(to + 1 for to, node in pairs if node == i) for i in own]
        n_sent = sum(node in own for _, node in pairs)
        cases = product(DTYPES, FEATURES)
        for (dtype, features), result in zip(cases, outcomes[rank][f"dtypes {n}"], strict=True):
            rows, doubled, gradient, sent, returned = result
            expected = draw_small_integers(features, dtype)[own + [node for _, node in halo]]
            assert torch.equal(rows, expected)
            assert torch.equal(doubled, 2 * expected)
            weights_of_rows = torch.tensor(weights, dtype=dtype).reshape(-1, *[1] * len(features))
            assert torch.equal(gradient, weights_of_rows.expand(-1, *features))
            row_bytes = dtype.itemsize * math.prod(features)
            assert (sent, returned) == (2 * n_sent * row_bytes, len(halo) * row_bytes)


def run_alone(n_nodes=3):
    ring = torch.stack([torch.arange(n_nodes), torch.arange(n_nodes).roll(1)], 1)
    return HaloPlan.of(torch.zeros(n_nodes, dtype=torch.int64), ring, 0, 1)


def test_one_rank_keeps_its_rows():
    plan = run_alone()
    transport, x = SelfTransport(), torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    rows = exchange(x, plan, transport)
    assert torch.equal(rows, x)
    assert transport.bytes_sent == 0
    assert torch.autograd.gradcheck(exchange, (x, plan, transport))
    assert torch.autograd.gradgradcheck(exchange, (x, plan, transport))


class Diary(SelfTransport):
    """Records when messages are posted and when they are waited for."""

    def __init__(self):
        super().__init__()
        self.entries = []

    def start(self, sent, received):
        self.entries.append("post")
        return lambda: self.entries.append("wait")


def test_work_in_between_overlaps_in_both_directions():
    diary, plan = Diary(), run_alone()
    x = torch.ones(3, requires_grad=True)
    request = start(x, plan, diary)
    diary.entries.append("interior")
    interior = x * 2
    interior.register_hook(lambda gradient: diary.entries.append("interior"))
    loss = (request.wait() * interior).sum()
    assert diary.entries == ["post", "interior", "wait"]
    diary.entries.clear()
    loss.backward(retain_graph=True)
    assert diary.entries == ["post", "interior", "wait"]
    first = x.grad.clone()
    loss.backward()
    assert torch.equal(x.grad, 2 * first)


def test_an_exchange_is_waited_for_once():
    request = start(torch.ones(3), run_alone(), SelfTransport())
    request.wait()
    with pytest.raises(ValueError, match="keep what the first gave"):
        request.wait()


@pytest.mark.parametrize(
    ("x", "plan", "message"),
    [
        (torch.ones(2), run_alone(), r"x: expected 3 rows.*shape \(2,\).*x\[plan.own\]"),
        (torch.tensor(1.0), run_alone(), r"x: expected 3 rows.*shape \(\)"),
        (torch.ones(3).long(), run_alone(), "x: expected a dtype .* got torch.int64"),
        (torch.ones(3, device="meta"), run_alone(), r"x: expected device cpu .* \.to\(\)"),
        (
            torch.ones(0),
            HaloPlan.of(torch.zeros(3).long(), torch.zeros(0, 2).long(), 1, 2),
            "plan: expected rank 0 of 1, .* got rank 1 of 2; make it by HaloPlan.of",
        ),
    ],
)
def test_bad_arguments_are_named(x, plan, message):
    with pytest.raises(ValueError, match=message):
        exchange(x, plan, SelfTransport())


def test_torch_needs_a_process_group():
    with pytest.raises(ValueError, match="init_process_group first, or use SelfTransport"):
        TorchTransport()


def test_a_transport_for_cpus_refuses_other_tensors(tmp_path):
    message = r"expected tensors on cpu, got one on meta.*TorchTransport\(device="
    dist.init_process_group("gloo", f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match=message):
            TorchTransport().start({0: torch.ones(1, device="meta")}, {})
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    run_gloo(Path(sys.argv[1]))
