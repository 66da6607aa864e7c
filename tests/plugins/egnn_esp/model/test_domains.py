"""Several ranks compute what one computes, whoever owns the atoms.

Oracle: the same network without exchange on the whole structure, and autograd's derivatives of it.
Derivatives by inputs are those by positions, which act through distances; frames are constants. The
ranks are 2, 3 and 4 threads of this process, with messages through queues.
"""

from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch

from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.structure import Structure
from pipeline_atoms.testing.rank_threads import Mailbox, run_on_threads
from pipeline_core.batch import collate
from pipeline_egnn_esp.data.basis import Basis
from pipeline_kernels.halo import SelfTransport
from pipeline_kernels.partition import Method, partition
from plugins.egnn_esp import made_up
from tiers import run_first

N_RANKS = 4
N_LAYERS, CHANNELS, LMAX = 2, 3, 2
CUTOFF = 3.0
BASIS = Basis({"H": (0,), "O": (0, 0, 1)})
METHODS = get_args(Method)
CASES = [*METHODS, "no atoms on the first", "no atoms on the last", "two strangers"]
NODE_BYTES = 8 * (LMAX + 1) ** 2 * CHANNELS
EDGE_BYTES = 8 * BASIS.n_common**2


def make_network():
    sizes = {"channels": CHANNELS, "layers": N_LAYERS, "attention_cutoff": 2.5}
    sizes |= {"bond_cutoff": 1.5, "bond_functions": 2, "parity": False}
    return made_up.make_network(BASIS, CUTOFF, **sizes)


def split_structures():
    """Return for each case and number of parts a batch and owners of its atoms."""
    packed = made_up.pack_grid(["O", "H", "H"], (6, 2, 1), CUTOFF)
    strangers = [
        made_up.pack_grid(["O", "H"], (2, 2, 1), CUTOFF, seed)["positions"] for seed in (1, 2)
    ]
    positions = np.concatenate([strangers[0], strangers[1] + [20.0, 0, 0]])
    apart = made_up.sample(["O", "H"] * 4, positions, 40 * np.eye(3), CUTOFF)
    rng, result = np.random.default_rng(0), {}
    for case, n in product(CASES, range(2, N_RANKS + 1)):
        sample = apart if case == "two strangers" else packed
        if case in METHODS:
            where = [sample[name] for name in ("positions", "cell", "pbc", "edge_index")]
            owners = partition(*where, n, CUTOFF, case)
        elif case == "two strangers":
            owners = np.array([0] * 4 + [1 + k % (n - 1) for k in range(4)])
        else:
            owners = rng.integers(n - 1, size=12) + (case == "no atoms on the first")
        result[f"{case} {n}"] = made_up.collate_samples(sample), torch.from_numpy(owners)
    return result


def weigh_blocks(outputs, atoms, edges):
    """Return a loss in which each block of the whole structure has weights of its own."""
    total = 0
    for numbers, blocks in zip((atoms, edges), outputs.values(), strict=True):
        n = BASIS.n_common**2
        places = numbers[:, None] * n + torch.arange(n)
        total = total + (blocks.flatten(1) ** 2 * torch.cos(places.double())).sum()
    return total


def make_domain(batch, owners, transport):
    """Return a domain and the numbers of its edges in the whole structure."""
    numbers, positions = (batch[name].numpy() for name in ("atomic_numbers", "positions"))
    structure = Structure(numbers, positions, batch["cell"][0].numpy(), batch["pbc"][0].numpy())
    edges = (owners[batch["edge_index"][:, 0]] == transport.rank).nonzero().flatten()
    return build_domain(structure, CUTOFF, owners.numpy(), transport), edges


def compute_results(module, batch, domain, atoms, edges, transport):
    """Return outputs, gradients by positions and parameters, messages and bytes there and back."""
    positions = batch["positions"].clone().requires_grad_()
    before = transport.bytes_sent, transport.n_starts
    outputs = module(batch | {"positions": positions}, domain)
    between = transport.bytes_sent, transport.n_starts
    inputs = [positions, *module.parameters()]
    gradients = torch.autograd.grad(
        weigh_blocks(outputs, atoms, edges), inputs, materialize_grads=True
    )
    after = transport.bytes_sent, transport.n_starts
    counts = [
        [b - a for a, b in zip(*ends, strict=True)]
        for ends in ((before, between), (between, after))
    ]
    result = {name: blocks.detach() for name, blocks in outputs.items()}
    return result | {"by positions": gradients[0], "by weights": gradients[1:], "counts": counts}


def count_exchanges(kind):
    """Return a transport that counts exchanges."""

    class Counted(kind):
        n_starts = 0

        def start(self, sent, received):
            self.n_starts += 1
            return super().start(sent, received)

    return Counted


def make_serial(batch):
    atoms, edges = (torch.arange(len(batch[name])) for name in ("positions", "edge_index"))
    return compute_results(
        make_network(), batch, None, atoms, edges, count_exchanges(SelfTransport)()
    )


def run_one_rank(module, batch, owners, transport):
    domain, edges = make_domain(batch, owners, transport)
    inputs, atoms = collate([domain.make_inputs()], torch.float64), domain.atoms
    result = compute_results(module, inputs, domain, atoms.own, edges, transport)
    return result | {"own": atoms.own, "halo": atoms.halo, "edges": edges}


@pytest.fixture(scope="module")
def cases():
    return split_structures()


@pytest.fixture(scope="module")
def whole(cases):
    """What one process computes for each of the two structures."""
    return {name: make_serial(cases[f"{name} 2"][0]) for name in ("auto", "two strangers")}


@pytest.fixture(scope="module")
def actual(cases):
    """Compute outputs, gradients and messages of each rank, of a case and a number of ranks."""
    module = make_network()

    @cache
    def compute(case, n):
        def work(transport):
            mailbox = count_exchanges(Mailbox)(transport.rank, transport.size, transport._queues)
            return run_one_rank(module, *cases[f"{case} {n}"], mailbox)

        return run_on_threads(n, work)

    return compute


def close(ours, expected, tolerance):
    """Compares with the largest element as the measure."""
    assert ours.dtype == expected.dtype == torch.float64
    scale = max(1, float(expected.abs().max()))
    torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance * scale)


def join_rows(parts, name, numbers):
    """Return rows of the whole structure from those of the ranks."""
    order = torch.cat([part[numbers] for part in parts]).argsort()
    return torch.cat([part[name] for part in parts])[order]


FIRST = [(case, 2 + number % 3) for number, case in enumerate(CASES)]
FIRST += [("auto", n) for n in range(2, N_RANKS + 1)]
SHARED = run_first(product(CASES, range(2, N_RANKS + 1)), *FIRST)


@pytest.mark.slow
@pytest.mark.parametrize("shared", SHARED)
def test_distributed_equals_serial(actual, whole, shared):
    case, n = shared
    parts = actual(case, n)
    expected = whole.get(case, whole["auto"])
    for name, numbers in (("node_blocks", "own"), ("edge_blocks", "edges")):
        close(join_rows(parts, name, numbers), expected[name], 1e-12)
    by_positions = torch.zeros_like(expected["by positions"])
    for part in parts:
        rows = torch.cat([part["own"], part["halo"]])
        by_positions.index_add_(0, rows, part["by positions"])
    assert expected["by positions"].abs().max() > 0.1
    close(by_positions, expected["by positions"], 1e-10)
    summed = [sum(shares) for shares in zip(*(p["by weights"] for p in parts), strict=True)]
    for gradient, reference in zip(summed, expected["by weights"], strict=True):
        close(gradient, reference, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("shared", SHARED)
def test_exchanges_and_bytes_are_those_of_the_plan(actual, cases, shared):
    """One exchange of atoms a layer, one of reverse edges; back, ranks send what they received."""
    case, n = shared
    batch, owners = cases[f"{case} {n}"]
    ends = owners[batch["edge_index"]].tolist()
    needed = {(i, int(j)) for (i, _), j in zip(ends, batch["edge_index"][:, 1], strict=True)}
    crossing = {(to, int(j)) for to, j in needed if int(owners[j]) != to}
    n_strange = 0
    for rank in range(n):
        domain, _ = make_domain(batch, owners, SimpleNamespace(rank=rank, size=n))
        nodes, edges = domain.atoms, domain.edges
        atoms_sent = sum(int(owners[j]) == rank for _, j in crossing)
        atoms_received = sum(to == rank for to, _ in crossing)
        edges_sent = sum(i == rank != j for i, j in ends)  # and as many arrive: their reverse
        there = N_LAYERS * atoms_sent * NODE_BYTES + edges_sent * EDGE_BYTES
        back = N_LAYERS * atoms_received * NODE_BYTES + edges_sent * EDGE_BYTES
        assert N_LAYERS * nodes.n_sent * NODE_BYTES + edges.n_sent * EDGE_BYTES == there
        assert N_LAYERS * nodes.n_halo * NODE_BYTES + edges.n_halo * EDGE_BYTES == back
        counts = actual(case, n)[rank]["counts"]
        assert counts == [[there, N_LAYERS + 1], [back, N_LAYERS + 1]]
        n_strange += n - 1 - len(nodes.receives)
    assert n_strange > 0 or case not in CASES[len(METHODS) :]


@pytest.mark.slow
def test_ranks_agree_on_the_blocks_they_share(actual, cases):
    """The block of an edge and of its reverse on another rank are transposed to the last bit."""
    batch, owners = cases["low_nn 4"]
    edges = join_rows(actual("low_nn", 4), "edge_blocks", "edges")
    receivers, senders = owners[batch["edge_index"]].T
    assert (receivers != senders).any()
    assert torch.equal(edges, edges[batch["reverse_edge"]].mT)
