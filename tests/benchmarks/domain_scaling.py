"""One crystal over several ranks: what cutting costs, strong and weak scaling on this machine.

    python tests/benchmarks/domain_scaling.py [--small] [--full] [--model mace chgnet]

Energy, forces and stress of rattled hafnia, neighbours kept, by potentials of random weights. The
same two cores work on it as one rank of two threads and as two ranks of one; `efficiency_2` is the
time of the first over that of the second: 1 if cutting costs nothing. `waiting_share` is the part
of the time of rank 0 in which it waits for messages. Both take turns; times are medians.

`strong` has the same crystal on 1, 2 and 4 ranks of one thread, `weak` as many atoms a rank; more
ranks than cores share them. `beyond` projects the strong line: computation falls with the ranks,
and halos with the surface of a part, at the latency and bandwidth measured between two processes
here. It is no measurement.

The last line printed is one JSON object.
"""

import json
import statistics

import torch

from harness.command import make_parser, read_arguments
from harness.ranks import run_ranks
from harness.report import print_report, read_versions
from pipeline_core.profiling.network import measure_network

_SIZES = {"mace": 16, "chgnet": 64}
_SIDES = 6
"""Neighbours of a part among many."""


def run(model, repeat, ranks, threads, steps):
    """Return what the ranks measure."""
    case = {"model": model, "repeat": repeat, "channels": _SIZES[model], "steps": steps}
    return run_ranks("subjects.domains.steps", [json.dumps(case)], ranks, threads)


def project(alone, halved, numbers):
    """Return the projected efficiency of many ranks.

    Args:
        alone: What one rank measured.
        halved: What two ranks did, each of which has two cuts through the crystal.
        numbers: Of ranks.
    """
    network = measure_network(torch.device("cpu"))
    rows = {}
    for n in numbers:
        # Of n parts like the whole a side has n^(-2/3) of the area of a cut.
        sent = halved["bytes_sent"] / 2 * _SIDES * n ** (-2 / 3)
        adding = _SIDES * halved["exchanges"] * network["alpha"] + sent / network["bandwidth"]
        compute = alone["median"] / n
        rows[str(n)] = compute / (compute + adding)
    return rows


def main():
    """Measure all models and print one JSON object as the last line."""
    parser = make_parser(__doc__, repeats=2, full="strong and weak lines of both models")
    parser.add_argument("--model", nargs="+", choices=_SIZES, default=["mace"])
    parser.add_argument("--steps", type=int, default=5)
    parser.set_defaults(copies=(10, 10, 8), threads=2)
    small = {"copies": (2, 2, 2), "steps": 2, "repeats": 1}
    args = read_arguments(parser, small, {"model": [*_SIZES]})
    repeat, rows = args.copies, []
    for model in args.model:
        pairs = [
            (run(model, repeat, 1, 2, args.steps), run(model, repeat, 2, 1, args.steps))
            for _ in range(args.repeats)
        ]
        times = [
            statistics.median(second for pair in pairs for second in pair[side]["seconds"])
            for side in (0, 1)
        ]
        row = {"model": model, "atoms": pairs[0][0]["atoms"], "efficiency_2": times[0] / times[1]}
        row |= {"waiting_share": pairs[0][1]["waiting_share"], "seconds": times}
        if args.full:
            row |= measure_lines(model, repeat, args.steps)
        rows.append(row)
    figures = {key: [row[key] for row in rows] for key in ("efficiency_2", "waiting_share")}
    figures |= {"rows": rows, "peer": "one rank of two threads"}
    print_report("domain_scaling", figures, threads=2, versions=read_versions("torch"))


def measure_lines(model, repeat, steps):
    """Return the strong and the weak line, and the projection."""
    strong = {n: run(model, repeat, n, 1, steps) for n in (1, 2, 4)}
    for result in strong.values():
        result["median"] = statistics.median(result["seconds"])
    x, y, z = repeat
    weak = {n: run(model, (x * n // 4, y, z), n, 1, steps) for n in (1, 2, 4)}
    return {
        "strong": {str(n): result["median"] for n, result in strong.items()},
        "weak": {str(n): statistics.median(result["seconds"]) for n, result in weak.items()},
        "beyond": project(strong[1], strong[2], (16, 64, 256)),
    }


if __name__ == "__main__":
    main()
