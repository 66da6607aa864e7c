"""A training step and an inference of MACE against mace-torch, on the same batches of MPtrj.

    make peers
    python tests/benchmarks/mace_step.py [--full] [--atoms 100 400] [--correlations 2 3] [--small]
                                         [--device cuda] [--peer-kernels cuequivariance]

The network is that of arXiv:2504.10700: 128 channels of 0e and 1o, harmonics up to degree 3, cutoff
4.5 Å, two layers with residuals, all 89 elements of MPtrj; both sides have the same weights. A step
is batch, energies and forces, loss (those of mace-torch), backward and Adam, each as in the side's
own training: that of mace-torch derives by all that its forces need and leaves Adam to torch, ours
derives by the parameters alone and fuses Adam. An inference is batch, energies and forces. Both
start from finished neighbour graphs. Single precision. With `--peer-kernels cuequivariance` the
peer is what mace-torch's converter makes of the network.

The last line printed is one JSON object, with a list for each figure: one entry a case. Times are
medians of calls in turn; memory is the growth of the resident memory of a process during a call,
beyond what stays between calls; `deviation` is how far results are apart, relative to the largest.
`roofline_share` is the time that the operations (`_mace_operations.py`) take at the rate of a large
product of matrices by torch, measured in the same run, over ours; those of the radial network count
once for both edges of a pair. `peak_gflops` is what multiply-adds in registers reach (`_peak.py`).
"""

import argparse
import json
from typing import Any

import torch
from _mace_operations import count_network_calls
from _mace_ours import OURS, build_graphs, make_network
from _mace_sides import (
    collect_arrays,
    compare,
    describe_machine,
    draw_structures,
    make_parser,
    parse_command_line,
)
from ase.data import chemical_symbols

from pipeline_mace.weights import list_rows

ABSENT = {84, 85, 86, 87, 88}  # Po to Ra; MPtrj has the other elements up to Pu
ELEMENTS = [chemical_symbols[z] for z in range(1, 95) if z not in ABSENT]
SIZES = [100, 400]
MORE_SIZES = [*SIZES, 800]


def measure(n_atoms: int, correlation: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure both calls for a batch of about so many atoms."""
    arrays = collect_arrays(draw_structures(args.data, n_atoms))
    options = make_network_options(correlation, args.channels)
    n_edges = sum(len(s["edge_index"]) for s in build_graphs(arrays, options["model"]["cutoff"]))
    atoms = len(arrays["numbers"])
    options |= {"device": args.device, "peer_kernels": args.peer_kernels}
    options["average_neighbours"] = n_edges / atoms
    torch.manual_seed(0)
    module = make_network(options)
    weights = {row.name: row.join().numpy() for row in list_rows(module)}
    weights |= {OURS + name: x.numpy() for name, x in module.state_dict().items()}
    flop = count_network_calls(module, atoms, n_edges)
    result = compare("Network", arrays | weights, options, flop, args, args.device)
    size = {"atoms": atoms, "structures": len(arrays["n_atoms"]), "edges": n_edges}
    return [
        {
            "case": f"{call}, {atoms} atoms, correlation {correlation}",
            **result[call],
            **size,
            "ours_ms_per_atom": 1e3 * result[call]["ours_s"] / atoms,
            "peer_ms_per_atom": 1e3 * result[call]["peer_s"] / atoms,
        }
        for call in flop
    ]


def make_network_options(correlation: int, channels: int) -> dict[str, Any]:
    """Return the options that both sides build their network from."""
    from pipeline_mace.options import MACEOptions

    options = MACEOptions(correlation=correlation, channels=channels, cutoff=4.5, lmax=3)
    return {"elements": ELEMENTS, "model": options.model_dump()}


def main() -> None:
    command_line = make_parser(__doc__)
    command_line.add_argument("--atoms", type=int, nargs="+", help=f"{SIZES} if not given")
    command_line.add_argument("--full", action="store_true", help=f"{MORE_SIZES}; ten minutes")
    command_line.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    command_line.add_argument("--peer-kernels", choices=["e3nn", "cuequivariance"], default="e3nn")
    args = parse_command_line(command_line, {"atoms": [100], "channels": 16, "repeats": 2})
    args.atoms = args.atoms or (MORE_SIZES if args.full else SIZES)
    facts = describe_machine(args, args.device)
    rows = []
    for n_atoms in args.atoms:
        for correlation in args.correlations:
            for row in measure(n_atoms, correlation, args):
                rows.append(row)
                print(json.dumps(row), flush=True)
    report = {"name": "mace_step", "cases": [row.pop("case") for row in rows], "peer": "mace-torch"}
    report |= {key: [row[key] for row in rows] for key in rows[0]}
    print(json.dumps(report | facts | {"channels": args.channels}))


if __name__ == "__main__":
    main()
