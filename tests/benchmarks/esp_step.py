"""A training step of eGNN-ESP against tensor products of e3nn and against DeePTB, for each edge.

    make peers
    python tests/benchmarks/esp_step.py [--full] [--threads 2] [--peers so3 so3_lmax parity dptb]
                                        [--structures 1:8 2:8] [--small]

Shipped hafnia: 12 atoms with a cutoff of 8 Å; in full also 96 atoms, 12 with 10 Å, and one thread.
The network has the 16 channels of the paper's scaling runs, lmax 4 and two layers, and atoms attend
to all edges. A step is prediction, loss, backward and Adam, from a finished batch with its labels.
Single precision, on the CPU.

| peer       | what                                                                            |
|------------|---------------------------------------------------------------------------------|
| `so3`      | the same network with tensor products of e3nn, `esp/so3.py`: the same function |
|            | of as many weights or more, harmonics to 2 lmax; `deviation` is how far results |
|            | are apart (blocks, loss, gradients), relative to the largest                    |
| `so3_lmax` | harmonics to lmax only, where such networks usually end: fewer weights, another |
|            | function                                                                        |
| `parity`   | the same network with `parity`, as wide: fewer weights, another function        |
| `dptb`     | SLEM of DeePTB, `esp/dptb.py`: another SO(2) network with as many channels,    |
|            | degrees and layers for the same task, with its own loss; left out where the     |
|            | environment of the peers lacks it                                               |

The call `messages` is the attention of a node block alone, forward: what edges send to atoms.

The last line printed is one JSON object, with a list for each figure: one entry a case. Times are
medians of calls in turn; memory is the growth of the resident memory of a process during a call,
beyond what stays between calls. `roofline_share` is the time that the operations
(`esp/operations.py`) take at the rate of a large product of matrices by torch, measured after each
case with as many threads, over ours; `peak_gflops` is what multiply-adds in registers reach
(`harness/peak.py`). Tensor products store a megabyte for each edge, so they are left out above
`--so3-edges`.
"""

import sys
from argparse import Namespace
from typing import Any, NamedTuple, Self

from harness.calls import measure_calls
from harness.command import count_cores, make_parser, read_arguments
from harness.report import collect_columns, print_report, scale_times, show
from harness.sides import Place
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.options import ESPOptions
from subjects.esp.compare import FRAME, Peer, find_dptb, read_esp_versions
from subjects.esp.operations import count_message_operations, step_operations
from subjects.esp.structures import BASIS, read_arrays

PEER_NAMES = ("so3", "so3_lmax", "parity", "dptb")
LMAX = 4


class Structure(NamedTuple):
    """A cell of 12 atoms, repeated along each vector, and the cutoff of its graph."""

    copies: int
    cutoff: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Read COPIES:CUTOFF."""
        copies, cutoff = text.split(":")
        return cls(int(copies), float(cutoff))


STRUCTURES = [Structure(1, 8.0)]
MORE_STRUCTURES = [*STRUCTURES, Structure(2, 8.0), Structure(1, 10.0)]


def list_peers(args: Namespace) -> dict[str, Peer]:
    """Return the peers that are asked for and there."""
    so3 = "subjects.esp.so3"
    known = {
        "so3": Peer(Place(so3, {"harmonics": 2 * LMAX}), ("step", "messages"), same=True),
        "so3_lmax": Peer(Place(so3, {"harmonics": LMAX})),
        "parity": Peer(Place("subjects.esp.parity")),
        "dptb": Peer(find_dptb(args) if "dptb" in args.peers else None),
    }
    return {name: known[name] for name in args.peers if known[name].place is not None}


def measure(
    structure: Structure, name: str, peer: Peer, threads: int, args: Namespace
) -> list[dict[str, Any]]:
    """Measure all calls of a structure beside a peer."""
    arrays = read_arrays(FRAME, (structure.copies,) * 3, structure.cutoff)
    model = ESPOptions(channels=args.channels, lmax=LMAX, layers=2, parity=False)
    options = {"model": model.model_dump(), "basis": BASIS, "loss": {"relative": 0.3}}
    options |= {"cutoff": structure.cutoff}
    n_atoms, n_edges = len(arrays["positions"]), len(arrays["edge_index"])
    if name.startswith("so3") and n_edges > args.so3_edges:
        return []
    places, flop = peer.list_places(options), count_operations(model, n_atoms, n_edges)
    result = measure_calls(
        places,
        "Network",
        arrays,
        [{call: flop[call] for call in peer.calls}],
        threads=threads,
        repeats=args.repeats,
        same=peer.same,
        parameters=True,
    )
    return [
        {
            "cases": f"{call}, {n_atoms} atoms, {structure.cutoff:g} Å, {threads} threads, {name}",
            **figures,
            "deviation": max(figures["deviation"].values()) if peer.same else None,
            "atoms": n_atoms,
            "edges": n_edges,
            "threads": threads,
            **scale_times(figures, 1e6 / n_edges, "us_per_edge"),
            "messages_per_s": n_edges / figures["ours_s"] if call == "messages" else None,
        }
        for call, figures in result.items()
    ]


def count_operations(model: ESPOptions, n_atoms: int, n_edges: int) -> dict[str, int]:
    """Return the operations of each call."""
    basis = Basis({symbol: tuple(shells) for symbol, shells in BASIS.items()})
    network = Network(model, basis, 1.0)  # whose cutoff has no influence
    message = count_message_operations(network.node_blocks[0].attention)
    step = step_operations(network, n_atoms, n_edges)
    return {"step": step, "messages": n_edges * message}


def main() -> None:
    """Measure all structures beside all peers and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=3, full="96 atoms, 10 Å, one thread; an hour", peers=True)
    parser.add_argument(
        "--structures",
        type=Structure.of,
        nargs="+",
        metavar="COPIES:CUTOFF",
        default=STRUCTURES,
        help="copies of the cell along each vector, Å",
    )
    cores = count_cores()
    parser.add_argument("--threads", type=int, nargs="+", default=[cores])
    parser.add_argument("--peers", nargs="+", choices=PEER_NAMES, default=PEER_NAMES)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--so3-edges", type=int, default=6000, help="most edges of tensor products")
    small = {"structures": [Structure(1, 3.5)], "channels": 4, "repeats": 1, "threads": [1]}
    small["peers"] = ["so3", "dptb"]
    args = read_arguments(
        parser, small, {"structures": MORE_STRUCTURES, "threads": sorted({1, cores})}
    )
    peers, rows = list_peers(args), []
    for structure in args.structures:
        for threads in args.threads:
            for name, peer in peers.items():
                for row in measure(structure, name, peer, threads, args):
                    rows.append(row)
                    show(row)
    if not rows:
        sys.exit("nothing is measured: no peer is there, or all structures have too many edges")
    figures = collect_columns(rows) | {"peer": "e3nn tensor products (so3), DeePTB (dptb)"}
    figures |= {"channels": args.channels, "repeats": args.repeats}
    dptb = peers["dptb"].place if "dptb" in peers else None
    print_report("esp_step", figures, threads=None, versions=read_esp_versions(dptb))


if __name__ == "__main__":
    main()
