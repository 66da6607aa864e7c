"""CHGNet here and in the package chgnet, on the same batches of structures; for `chgnet_*.py`.

| side    | network                                                                               |
|---------|---------------------------------------------------------------------------------------|
| `ours`  | that of the plugin with the published weights; forces and stress are derivatives      |
| `heads` | that of the plugin with `heads: pair` and `updates: parallel`, default sizes, random  |
|         | weights, since none are published; forces and stress are read from features           |
| `peer`  | that of the package with the published weights; forces and stress are derivatives     |

All get the same structures of MPtrj, drawn at random with a fixed seed, in single precision, start
from finished neighbour graphs, put them into a batch within the time measured, and may use the same
number of threads. Each is a process of its own; a new one is started for each batch. Processes run
as those of their users: training here keeps memory that it frees, that of the package does not.

Times are medians of calls in turn, one process at a time. Memory is the growth of the resident
memory of a process during a call, beyond what stays between calls (on a GPU: of allocated memory),
while no other side is alive. A ratio is the peer's over ours, or over that with heads.
`deviation` is how far results of `ours` and `peer` are apart, relative to the largest. `operators`
are calls that reach torch's dispatcher, or those of the plugin that go past it; on a GPU `launches`
are the kernels that a call starts there. Figure 8 of FastCHGNet shows time, launches and memory for
`--device cuda --batch-sizes 16 32 64`.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ase

from harness.command import find_mptrj, find_peer, make_parser, read_arguments
from harness.report import collect_columns, divide, print_report, show
from harness.sides import (
    WARM_UP,
    Place,
    compare_sides,
    find_medians,
    open_sides,
    read_side_versions,
    take_turns,
)
from harness.structures import draw_structures, pack_labels, pack_structures

SIZES, MORE_SIZES = [8, 16], [8, 16, 32]
NAMES = ("ours", "heads", "peer")


def run(name: str, call: str, description: str | None) -> None:
    """Measure a call for all sizes of batches and print one JSON object as the last line."""
    parser = make_parser(description, repeats=5, full=f"{MORE_SIZES}; 16 GB of memory", device=True)
    parser.add_argument("--data", type=Path, help="extended XYZ of MPtrj, if not the usual one")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=SIZES)
    small, full = {"batch_sizes": [2], "repeats": 2}, {"batch_sizes": MORE_SIZES}
    args = read_arguments(parser, small, full)
    places, rows = list_places(args.device, training=call == "step"), []
    for n in args.batch_sizes:
        structures = draw_structures(args.data or find_mptrj(), n)
        rows.append(measure(call, structures, places, args))
        show(rows[-1])
    figures = collect_columns(rows) | {"peer": "chgnet" if "peer" in places else None}
    versions = read_side_versions({"ours": places["ours"]}, ["chgnet", "torch", "numpy"])["ours"]
    print_report(name, figures, threads=args.threads, versions=versions, device=args.device)


def list_places(device: str, *, training: bool) -> dict[str, Place]:
    """Return all sides but for a peer that is not there."""
    told, python = {"device": device, "training": training}, find_peer("chgnet")
    places = {
        "ours": Place("subjects.chgnet.ours", told | {"heads": False}),
        "heads": Place("subjects.chgnet.ours", told | {"heads": True}),
    }
    return places | ({"peer": Place("subjects.chgnet.peer", told, python)} if python else {})


def measure(
    call: str, structures: Sequence[ase.Atoms], places: Mapping[str, Place], args: Namespace
) -> dict[str, Any]:
    """Measure a call of all sides for one batch."""
    arrays = pack_structures(structures) | pack_labels(structures)
    figures: dict[str, Any] = dict.fromkeys(
        f"{name}_{what}" for what in ("s", "best_s", "operators", "launches") for name in NAMES
    )
    with open_sides(places, "Network", arrays, args.threads) as sides:
        deviation = max(compare_sides(sides).values(), default=None)
        times = take_turns(sides, call, args.repeats)
        seconds = find_medians(times)
        figures |= {f"{name}_s": median for name, median in seconds.items()}
        figures |= {f"{name}_best_s": min(times[name])[0] for name in sides}
        figures |= compare(seconds, "ratio")
        for name, side in sides.items():
            figures[f"{name}_operators"] = side.ask("operators", call)
            has_launches = args.device == "cuda"
            figures[f"{name}_launches"] = side.ask("launches", call) if has_launches else None
        rate = sides["ours"].ask("matrix_rate", args.device)  # forgets the network
    # Each derivative triples the work.
    needed = (6 if call == "step" else 2) * count_operations(structures)
    return {
        "batch_size": len(structures),
        "atoms": sum(map(len, structures)),
        **figures,
        "deviation": deviation,
        **measure_memory(call, arrays, places, args.threads),
        "roofline_share": needed / rate / figures["ours_s"],
    }


def measure_memory(
    call: str, arrays: Mapping[str, Any], places: Mapping[str, Place], threads: int
) -> dict[str, float | None]:
    """Return the memory of a call of each side, which is alone."""
    peak: dict[str, Any] = {}
    for name, place in places.items():
        with open_sides({name: place}, "Network", arrays, threads) as sides:
            for _ in range(WARM_UP):
                sides[name].ask("seconds", call)
            peak[name] = sides[name].ask("peak_bytes", call) / 1e9
    return {f"{name}_gb": peak.get(name) for name in NAMES} | compare(peak, "memory_ratio")


def compare(figures: Mapping[str, float], name: str) -> dict[str, float | None]:
    """Return the peer's figure over ours and over that with heads, none where those are zero."""
    peer = figures.get("peer")
    return {name: divide(peer, figures["ours"]), f"heads_{name}": divide(peer, figures["heads"])}


def count_operations(structures: Sequence[ase.Atoms]) -> float:
    """Operations of the matrix products of one forward pass over edges, angles and bonds."""
    from subjects.chgnet.ours import CUTOFFS, build_samples

    samples = build_samples(structures, **CUTOFFS)
    n_edges = sum(len(sample["edge_index"]) for sample in samples)
    n_angles = sum(len(sample["angle_edges"]) for sample in samples)
    hidden, first = 2 * 2 * 64 * 64, 2 * 64 * 128
    atom_convolutions = 4 * n_edges * (hidden + first / 2)  # an edge is half a bond
    return atom_convolutions + n_angles * (3 * hidden + 5 * first)
