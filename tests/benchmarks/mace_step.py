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
`roofline_share` is the time that the operations (`mace/operations.py`) take at the rate of a large
product of matrices by torch, measured in the same run, over ours; those of the radial network count
once for both edges of a pair. `peak_gflops` is what multiply-adds in registers reach
(`harness/peak.py`).
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

from harness.calls import measure_calls
from harness.command import find_mptrj, make_parser, read_arguments
from harness.report import collect_columns, print_report, scale_times, show
from harness.sides import Place
from harness.structures import draw_atoms, pack_labels, pack_structures
from subjects.mace.networks import ELEMENTS, draw_network, list_places, read_mace_versions
from subjects.mace.operations import count_network_calls

SIZES = [100, 400]
SMALL = {"atoms": [30], "correlations": [2], "channels": 8, "repeats": 1}


def measure(
    places: dict[str, Place], n_atoms: int, correlation: int, args: Namespace
) -> list[dict[str, Any]]:
    """Measure both calls for a batch of about so many atoms."""
    structures = draw_atoms(args.data, n_atoms)
    sizes = {"correlation": correlation, "channels": args.channels}
    weights, options, module = draw_network(structures, ELEMENTS, **sizes)
    options |= {"device": args.device, "peer_kernels": args.peer_kernels}
    sides = {name: Place(one.module, options, one.python) for name, one in places.items()}
    atoms = sum(map(len, structures))
    arrays = weights | pack_structures(structures) | pack_labels(structures)
    calls = count_network_calls(module, atoms, options["edges"])
    groups = [calls] if args.small else [{call: flop} for call, flop in calls.items()]
    kinds = {"threads": args.threads, "repeats": args.repeats, "device": args.device}
    kinds["operators"] = "cuequivariance_ops"
    result = measure_calls(sides, "Network", arrays, groups, **kinds)
    size = {"atoms": atoms, "structures": len(structures), "edges": options["edges"]}
    return [
        {"cases": f"{call}, {atoms} atoms, correlation {correlation}", **row, **size}
        | scale_times(row, 1e3 / atoms, "ms_per_atom")
        for call, row in result.items()
    ]


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    parser = make_parser(
        __doc__, repeats=5, full="800 atoms, too; ten minutes", device=True, peers=True
    )
    parser.add_argument("--data", type=Path, help="extended XYZ of MPtrj, if not the usual one")
    parser.add_argument("--atoms", type=int, nargs="+", default=SIZES)
    parser.add_argument("--correlations", type=int, nargs="+", choices=[2, 3], default=[2, 3])
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--peer-kernels", choices=["e3nn", "cuequivariance"], default="e3nn")
    args = read_arguments(parser, SMALL, {"atoms": [*SIZES, 800]})
    args.data = args.data or find_mptrj()
    places, rows = list_places(args), []
    for n_atoms in args.atoms:
        for correlation in args.correlations:
            for row in measure(places, n_atoms, correlation, args):
                rows.append(row)
                show(row)
    figures = collect_columns(rows) | {"peer": "mace-torch" if "peer" in places else None}
    figures |= {"channels": args.channels, "repeats": args.repeats}
    versions = read_mace_versions(places)
    print_report("mace_step", figures, threads=args.threads, versions=versions, device=args.device)


if __name__ == "__main__":
    main()
