"""A training step of eGNN-ESP against tensor products of e3nn and against DeePTB, for each edge.

    make peers
    python tests/benchmarks/esp_step.py [--full] [--threads 2] [--peers so3 so3_lmax parity dptb]
                                        [--structures 1:8 2:8] [--small]

Shipped hafnia: 12 and 96 atoms with a cutoff of 8 Å; in full also 12 atoms with 10 Å, and one
thread. The network has the 16 channels of the paper's scaling runs, lmax 4 and two layers, and
atoms attend to all edges. A step is prediction, loss, backward and Adam, from a finished batch with
its labels. Single precision, on the CPU.

| peer       | what                                                                            |
|------------|---------------------------------------------------------------------------------|
| `so3`      | the same network with tensor products of e3nn, `_esp_so3.py`: the same function |
|            | of as many weights or more, harmonics to 2 lmax; `deviation` is how far results |
|            | are apart (blocks, loss, gradients), relative to the largest                    |
| `so3_lmax` | harmonics to lmax only, where such networks usually end: fewer weights, another |
|            | function                                                                        |
| `parity`   | the same network with `parity`, as wide: fewer weights, another function        |
| `dptb`     | SLEM of DeePTB, `_esp_dptb.py`: another SO(2) network with as many channels,    |
|            | degrees and layers for the same task, with its own loss; left out where the     |
|            | environment of the peers lacks it                                               |

The call `messages` is the attention of a node block alone, forward: what edges send to atoms.

The last line printed is one JSON object, with a list for each figure: one entry a case. Times are
medians of calls in turn; memory is the growth of the resident memory of a process during a call,
beyond what stays between calls. `roofline_share` is the time that the operations
(`_esp_operations.py`) take at the rate of a large product of matrices by torch, measured after each
case with as many threads, over ours; `peak_gflops` is what multiply-adds in registers reach
(`_peak.py`). Tensor products store a megabyte for each edge, so they are left out above
`--so3-edges`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Self

from _esp_operations import count_message_operations, step_operations
from _esp_sides import Peer, compare
from _esp_structures import BASIS, read_arrays
from _sides import PEERS, Side
from message_ops import name_hardware

from pipeline_egnn_esp.basis import Basis
from pipeline_egnn_esp.network import Network
from pipeline_egnn_esp.options import ESPOptions

FRAME = Path(__file__).parents[2] / "workflows/datasets/hfo2/matrices/tetragonal-2000K.h5"
PACKAGES = ("torch", "numpy", "e3nn", "dptb", "torch-geometric")
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


STRUCTURES = [Structure(1, 8.0), Structure(2, 8.0)]
MORE_STRUCTURES = [*STRUCTURES, Structure(1, 10.0)]


def list_peers(args: argparse.Namespace) -> dict[str, Peer]:
    """Return the peers that are asked for and there."""
    here = Path(sys.executable)
    known = {
        "so3": Peer("so3", here, 2 * LMAX, ("step", "messages"), same=True),
        "so3_lmax": Peer("so3", here, LMAX),
        "parity": Peer("parity", here),
        "dptb": Peer("dptb", args.peers_python),
    }
    chosen = {name: known[name] for name in args.peers}
    if "dptb" in chosen and not has_dptb(args.peers_python):
        print(f"dptb left out: {args.peers_python} lacks it; run `make peers`", file=sys.stderr)
        del chosen["dptb"]
    return chosen


def has_dptb(python: Path) -> bool:
    """Return whether an interpreter is there and finds the package."""
    look = "from importlib.metadata import version; version('dptb')"
    done = python.exists() and subprocess.run(
        [python, "-c", look], check=False, capture_output=True
    )
    return bool(done) and done.returncode == 0


def measure(
    structure: Structure, name: str, peer: Peer, threads: int, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure all calls of a structure beside a peer."""
    arrays = read_arrays(FRAME, (structure.copies,) * 3, structure.cutoff)
    model = ESPOptions(
        channels=args.channels, lmax=LMAX, layers=2, cutoff=structure.cutoff, parity=False
    )
    options = {"model": model.model_dump(), "basis": BASIS, "loss": {"relative": 0.3}}
    n_atoms, n_edges = len(arrays["positions"]), len(arrays["edge_index"])
    if peer.side == "so3" and n_edges > args.so3_edges:
        return []
    result = compare(arrays, options, peer, threads, args.repeats)
    flop = count_operations(model, n_atoms, n_edges)
    return [
        {
            "case": f"{call}, {n_atoms} atoms, {structure.cutoff:g} Å, {threads} threads, {name}",
            **figures,
            "atoms": n_atoms,
            "edges": n_edges,
            "threads": threads,
            "ours_us_per_edge": 1e6 * figures["ours_s"] / n_edges,
            "peer_us_per_edge": 1e6 * figures["peer_s"] / n_edges,
            "flop": flop[call],
            "roofline_share": flop[call] / (1e9 * figures["matrix_gflops"] * figures["ours_s"]),
            "messages_per_s": n_edges / figures["ours_s"] if call == "messages" else None,
        }
        for call, figures in result.items()
    ]


def count_operations(model: ESPOptions, n_atoms: int, n_edges: int) -> dict[str, int]:
    """Return the operations of each call."""
    network = Network(model, Basis({symbol: tuple(shells) for symbol, shells in BASIS.items()}))
    message = count_message_operations(network.node_blocks[0].attention)
    step = step_operations(network, n_atoms, n_edges)
    return {"step": step, "messages": n_edges * message}


def describe_machine(args: argparse.Namespace) -> dict[str, Any]:
    """Return what a report says of the machine."""
    with Side(Path(sys.executable), "_esp_ours", 1) as side:
        versions = {"ours": side.ask("versions", PACKAGES)}
    if "dptb" in args.peers:
        with Side(args.peers_python, "_esp_dptb", 1, openmp={}) as side:
            versions["peers"] = side.ask("versions", PACKAGES)
    return {"hardware": name_hardware("cpu"), "versions": versions, "repeats": args.repeats}


def parse_command_line() -> argparse.Namespace:
    """Read the command line."""
    command_line = argparse.ArgumentParser(description=__doc__)
    cores = len(os.sched_getaffinity(0))
    command_line.add_argument(
        "--structures",
        type=Structure.of,
        nargs="+",
        metavar="COPIES:CUTOFF",
        help="copies of the cell along each vector, Å",
    )
    command_line.add_argument(
        "--full", action="store_true", help="also 10 Å, and one thread; an hour"
    )
    command_line.add_argument("--threads", type=int, nargs="+")
    command_line.add_argument("--peers", nargs="+", choices=PEER_NAMES, default=PEER_NAMES)
    command_line.add_argument("--channels", type=int, default=16)
    command_line.add_argument("--repeats", type=int, default=5)
    command_line.add_argument(
        "--so3-edges", type=int, default=6000, help="most edges of tensor products"
    )
    command_line.add_argument(
        "--peers-python",
        type=Path,
        default=Path(os.environ.get("PEERS_PYTHON", PEERS)),
        help="interpreter that has dptb; else $PEERS_PYTHON, else that of make peers",
    )
    command_line.add_argument(
        "--small", action="store_true", help="a trial: few edges, channels, repeats"
    )
    args = command_line.parse_args()
    args.structures = args.structures or (MORE_STRUCTURES if args.full else STRUCTURES)
    args.threads = args.threads or sorted({1 if args.full else cores, cores})
    if args.small:
        vars(args).update(structures=[Structure(1, 4.5)], channels=4, repeats=1, threads=[1])
    return args


def main() -> None:
    args = parse_command_line()
    peers = list_peers(args)
    args.peers = list(peers)
    facts = describe_machine(args)
    rows = []
    for structure in args.structures:
        for threads in args.threads:
            for name, peer in peers.items():
                for row in measure(structure, name, peer, threads, args):
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    if not rows:
        sys.exit("nothing is measured: no peer is there, or all structures have too many edges")
    report = {"name": "esp_step", "cases": [row.pop("case") for row in rows]}
    report["peer"] = "e3nn tensor products (so3), DeePTB (dptb)"
    report |= {key: [row[key] for row in rows] for key in rows[0]}
    print(json.dumps(report | facts | {"channels": args.channels}))


if __name__ == "__main__":
    main()
