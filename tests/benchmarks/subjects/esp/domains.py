"""A program for several ranks: they train on a structure that they divide, and predict it.

Labels are overlaps by two-centre integrals, fitted to the shipped hafnia and from then on exact:
functions of the vector between two atoms. The network is to find them without those tables.

Arguments are a JSON object (cell, cutoff, method, steps, channels) and a folder. One rank writes
the weights that all predict with, each number of ranks the matrices. Prints as its last line, on
rank 0, losses before each step, seconds of a step, and the part of them that ranks wait for halos.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ase.io
import numpy as np
import torch

from harness.ranks import TimedTransport
from pipeline_atoms.domain import Domain
from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.domains.owners import choose_owners
from pipeline_atoms.domains.transports import choose_transport
from pipeline_atoms.graphs import build_neighbour_graph
from pipeline_atoms.structure import Structure
from pipeline_core.batch import Batch, collate
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.fields import FIELDS
from pipeline_core.task import Quantity
from pipeline_egnn_esp.data.baselines import TwoCentre
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.datasets import PackedSource
from pipeline_egnn_esp.data.packed import read_packed
from pipeline_egnn_esp.data.samples import Labelled, complete, make_block_fields
from pipeline_egnn_esp.inference.forward import predict_blocks
from pipeline_egnn_esp.inference.slots import assign_slots
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.model.scaling import ScaledNetwork, Sizes
from pipeline_egnn_esp.options import BlockLoss, ESPOptions
from pipeline_egnn_esp.training.objective import BlockObjective

SHELLS = {"Hf": [0, 0, 1, 2], "O": [0, 1]}
BASIS = Basis({symbol: tuple(shells) for symbol, shells in SHELLS.items()})
MATRICES = Path(__file__).parents[4] / "workflows/datasets/hfo2/matrices"
_FIELDS = make_block_fields(BASIS, "overlap")
_FRAMES = 5
"""Frames of each run of the shipped set to which integrals are fitted."""
_CHUNK = 2**13
"""Edges that are predicted at a time."""
_RATE = 1e-2


def make_module(cutoff: float, channels: int) -> ScaledNetwork:
    """Return a network of random weights, and the fitted integrals that are its labels."""
    torch.manual_seed(0)
    options = ESPOptions(
        target="overlap", two_centre=False, channels=channels, lmax=4, layers=1,
        attention_cutoff=min(4.0, cutoff), hidden_channels=channels, radial_functions=32,
    )  # fmt: skip
    tables, sizes = TwoCentre(BASIS, cutoff), Sizes(BASIS, cutoff)
    module = ScaledNetwork(Network(options, BASIS, cutoff), tables, sizes, uses_edges=False)
    module.fit(lambda: read_overlaps(cutoff))
    return module.double()


def read_overlaps(cutoff: float) -> Iterator[Batch]:
    """Yield frames of the shipped hafnia with their overlaps."""
    for path in sorted(MATRICES.glob("*.h5")):
        source = PackedSource(reader="packed", path=path.name, basis=SHELLS)
        for _, (_, matrix) in zip(range(_FRAMES), read_packed(path, source), strict=False):
            atoms = matrix.structure
            where = (atoms.positions, atoms.cell, atoms.pbc, cutoff)
            index, shift, _ = build_neighbour_graph(*where)
            longest = float(matrix.lengths.max())
            labelled = Labelled(complete(matrix, index, shift, longest), 0.0, index, shift)
            graph = {"edge_index": index, "edge_shift": shift}
            yield make_batch(vars(atoms) | graph | labelled.make_fields("overlap"))


def make_batch(arrays: dict[str, np.ndarray]) -> Batch:
    """Return one structure, or a part of one, as a batch."""
    return collate([arrays], torch.float64, {**FIELDS, **{field.name: field for field in _FIELDS}})


def add_labels(module: ScaledNetwork, inputs: Batch, n_own: int) -> Batch:
    """Return inputs with the overlaps of own atoms and of edges, NaN where blocks are padding."""
    numbers, ends = inputs["atomic_numbers"], inputs["atomic_numbers"][inputs["edge_index"]].T
    own = numbers[:n_own]
    blocks = (
        module.two_centre.predict_node_blocks(own),
        module.two_centre.predict_edge_blocks(inputs),
    )
    masks = BASIS.mask(own.numpy(), own.numpy()), BASIS.mask(*ends.numpy())
    labels = [
        values.masked_fill(~torch.from_numpy(mask), torch.nan)
        for values, mask in zip(blocks, masks, strict=True)
    ]
    return inputs | dict(zip(("node_blocks", "edge_blocks"), labels, strict=True))


def train(
    module: ScaledNetwork, batch: Batch, domain: Domain, ranks: Ranks, n_steps: int
) -> tuple[list[float], list[float]]:
    """Do steps of Adam on the whole structure; return losses before them, and their seconds."""
    quantities = tuple(Quantity(field.name, own_field=field) for field in _FIELDS)
    loss = BlockLoss(mse=0.0, mae=1000.0, relative=0.1)
    objective = BlockObjective(loss, quantities, module)
    counts = {n: ranks.all_reduce_sum(c.double()) for n, c in objective.counts(batch).items()}
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=_RATE)
    losses, seconds = [], []
    for _ in range(n_steps):
        begin = time.perf_counter()
        sums = objective.sums(module(batch, domain), batch)
        share = sum(objective.weights[n] * sums[n] / counts[n] for n in sums)
        optimizer.zero_grad()
        share.backward()
        for parameter in parameters:
            if parameter.grad is not None:
                ranks.all_reduce_sum(parameter.grad)
        losses.append(float(ranks.all_reduce_sum(share.detach().clone())))
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return losses, seconds


def gather_matrix(module: ScaledNetwork, domain: Domain, ranks: Ranks) -> list[np.ndarray]:
    """Return, on rank 0, blocks of atoms, and ends, images and blocks of pairs, in one order."""
    slots = assign_slots(domain)
    predicted = predict_blocks(module, slots, _CHUNK)
    rows, first = domain.rows, slots.first
    part = (
        rows[: domain.n_own],
        predicted.nodes.numpy(),
        rows[domain.edge_index.numpy()[first]],
        domain.edge_shift.numpy()[first],
        predicted.edges.numpy(),
    )
    parts = ranks.gather_on_zero(part)
    if not parts:
        return []
    own, nodes, ends, shifts, edges = (np.concatenate(rows) for rows in zip(*parts, strict=True))
    order = np.lexsort([*shifts.T, *ends.T])
    mask = BASIS.mask
    numbers = domain.structure.atomic_numbers
    nodes = np.where(mask(numbers, numbers), nodes[np.argsort(own)], 0)
    edges = np.where(mask(*numbers[ends].T), edges, 0)
    return [nodes, ends[order], shifts[order], edges[order]]


def main() -> None:
    case, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    atoms = ase.io.read(case["cell"])
    structure = Structure(
        atoms.numbers.astype(np.int32), atoms.positions, np.array(atoms.cell), np.array(atoms.pbc)
    )
    with connect_ranks("cpu", folder) as ranks:
        module = make_module(case["cutoff"], case["channels"])
        transport = TimedTransport(choose_transport(ranks))
        owners = choose_owners(structure, case["cutoff"], ranks, case["method"])
        domain = build_domain(structure, case["cutoff"], owners, transport)
        batch = add_labels(module, make_batch(domain.make_inputs()), domain.n_own)
        losses, seconds = train(module, batch, domain, ranks, case["steps"])
        waited, sent = transport.waited, transport.bytes_sent
        weights = folder / "weights.pt"
        if ranks.size == 1:
            torch.save(module.state_dict(), weights)
        module.load_state_dict(torch.load(weights))
        begin = time.perf_counter()
        matrix = gather_matrix(module, domain, ranks)
        report = {
            "ranks": ranks.size,
            "method": case["method"],
            "threads": torch.get_num_threads(),
            "losses": losses,
            "step_s": statistics.median(seconds),
            "waiting_share": waited / sum(seconds),
            "sent_bytes_per_step": sent / len(seconds),
            "predict_s": time.perf_counter() - begin,
            "own": ranks.gather(domain.n_own),
            "halo": ranks.gather(domain.atoms.n_halo),
            "edges": ranks.gather(domain.n_edges),
        }
        if ranks.is_rank_zero:
            np.savez(folder / f"{case['method']}_{ranks.size}.npz", *matrix)
            print(json.dumps(report))


if __name__ == "__main__":
    main()
