"""An epoch of gradient steps for HT-FBR against torch's autograd, alternated on the same points.

    python tests/benchmarks/htfbr_epoch.py [--device cuda] [--ways reference compiled] ...

Two surfaces with the trees of `workflows`, ranks 10: HONO, 10,000 points and 4,100 parameters, and
ethene, 34,000 points and 12 leaves of 5 functions. Points are those of the plugin's sources; of
ethene, whose points are costly, a few trajectories are repeated up to the number. An epoch is one
step over all points with AdamW; `htfbr/epochs.py` lists the ways to do it. `peer` keeps its points
in memory like ours; `dataloader` is what the paper compares with (Qiu et al.,
doi:10.4203/ccc.12.2.4, section 3).

The last line printed is one JSON object, with a list for each figure: one entry a case. Times are
medians. `kernel_s` is forward and backward alone. `flop` counts these two (see `operations`);
`roofline_share` is the time that they take at the rate of a large matrix product of the same type
on this machine, measured in the same run, over that of an epoch of ours, `kernel_share` over
`kernel_s`. `gradient_difference` is how far the gradients of ours and of the peer are apart.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness.command import make_parser, read_arguments
from harness.report import collect_columns, print_report, read_versions, show
from harness.timing import measure_matrix_rate, time_turns
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.project.run import Run
from subjects.htfbr.epochs import (
    Call,
    Case,
    capture_graph,
    count_operations,
    make_case,
    make_compiled_epoch,
    make_dataloader_epoch,
    make_epoch_of_ours,
    make_epoch_of_peer,
    make_gradient_of_ours,
    make_gradient_of_peer,
    make_reference_epoch,
)
from subjects.htfbr.project import call, make_project, read_workflow

POINTS = {"hono": 10_000, "ethene": 34_000}
MADE = {"hono": 10_000, "ethene": 1_500}  # by the source; repeated up to the number above
PRECISIONS = {"float32": "32-true", "float64": "64-true"}
WAYS: dict[str, Callable[[Case], Call]] = {
    "reference": make_reference_epoch,
    "compiled": make_compiled_epoch,
    "graph": capture_graph,
}
WARM_UP = 3


def make_runs(folder: Path, system: str, n_points: int | None) -> dict[str, Run]:
    """Make points and tables; return a run for each type."""
    dataset = read_workflow("datasets", system)
    dataset["source"] |= {"points": n_points or MADE[system], "gradients": False}
    dataset["split"] = {"val": 0.0, "test": 0.0}
    experiment = read_workflow("experiments/htfbr", system)
    content = {name: experiment[name] for name in ("description", "plugin", "model", "graph")}
    train = {"method": "resident", "epochs": 1_000_000, "optimizer": {"name": "adamw", "lr": 1e-2}}
    content["variants"] = {
        dtype: {"train": {**train, "precision": precision}}
        for dtype, precision in PRECISIONS.items()
    }
    project = make_project(folder / system, dataset, content)
    runs = {dtype: project.run("fit", dtype) for dtype in PRECISIONS}
    for number, run in enumerate(runs.values()):
        for stage in ("data", "graph", "partition")[number > 0 :]:
            call(run, stage)
    return runs


def measure(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one case; the rounds go through all ways in turn."""
    device, n = case.ranks.device.type, args.epochs_per_repeat
    gradients = {"kernel": make_gradient_of_ours(case), "peer_kernel": make_gradient_of_peer(case)}
    difference = measure_gradient_difference(*(gradient() for gradient in gradients.values()))
    calls, failed = (
        {"ours": make_epoch_of_ours(case), "peer": make_epoch_of_peer(case), **gradients},
        {},
    )
    for name in args.ways:
        try:
            calls[name] = warm_up(WAYS[name](case))
        except Exception as error:  # noqa: BLE001 - a compiler or a GPU may refuse in any way
            failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    for function in calls.values():
        warm_up(function)
    times = alternate({name: repeat_call(c, n) for name, c in calls.items()}, device, args.repeats)
    loader = warm_up(make_dataloader_epoch(case), 1)
    result = {name: time / n for name, time in times.items()}
    result |= alternate({"dataloader": loader}, device, args.loader_repeats)
    flop = count_operations(case.module.shape, len(case.table))
    rate = measure_matrix_rate(device, case.table.functions.dtype)
    return {
        "points": len(case.table),
        "parameters": case.module.transfers.numel(),
        **{f"{name}_s": result.get(name) for name in [*calls, "dataloader", *WAYS]},
        "ratio": result["peer"] / result["ours"],
        "ratio_dataloader": result["dataloader"] / result["ours"],
        "ratio_kernel": result["peer_kernel"] / result["kernel"],
        "flop": flop,
        "gflops": flop / result["ours"] / 1e9,
        "kernel_gflops": flop / result["kernel"] / 1e9,
        "matrix_gflops": rate / 1e9,
        "roofline_share": flop / rate / result["ours"],
        "kernel_share": flop / rate / result["kernel"],
        "gradient_difference": difference,
        "failed": failed,
    }


def warm_up(function: Call, times: int = WARM_UP) -> Call:
    """Call a function, which compiles and fills caches, and return it."""
    for _ in range(times):
        function()
    return function


def repeat_call(function: Call, times: int) -> Call:
    """Return a function that calls one so many times."""

    def calls() -> None:
        for _ in range(times):
            function()

    return calls


def alternate(functions: Mapping[str, Call], device: str, repeats: int) -> dict[str, float]:
    """Return the median time of each function, called in turn."""
    columns = time_turns([*functions.values()], device, repeats)
    return {name: median(column) for name, column in zip(functions, columns, strict=True)}


def measure_gradient_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """Return |left - right| over |right|."""
    return float((left - right).norm() / right.norm())


def measure_cases(args: argparse.Namespace, ranks: Ranks) -> tuple[dict[str, dict], dict[str, str]]:
    """Measure all cases; return them, and why some are left out."""
    rows, left_out = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for system in args.systems:
            try:
                runs = make_runs(Path(folder), system, args.points)
            except ValueError as error:  # ethene without tblite
                left_out[system] = str(error)
                print(f"{system}: left out: {error}")
                continue
            for dtype in args.dtypes:
                row = measure(make_case(runs[dtype], args.points or POINTS[system], ranks), args)
                rows[f"{system} {dtype}"] = row
                show({"case": f"{system} {dtype}"} | row)
    return rows, left_out


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = make_parser(__doc__, repeats=21, device=True)
    parser.add_argument("--systems", nargs="+", choices=[*POINTS], default=[*POINTS])
    parser.add_argument("--dtypes", nargs="+", choices=[*PRECISIONS], default=[*PRECISIONS])
    parser.add_argument("--ways", nargs="*", choices=[*WAYS], help="further ways; cuda: all")
    parser.add_argument(
        "--points", type=int, help="of each system; those of the paper if not given"
    )
    parser.add_argument("--epochs-per-repeat", type=int, default=5)
    parser.add_argument("--loader-repeats", type=int, default=3)
    small = {"systems": ["hono"], "points": 1_000, "repeats": 2, "loader_repeats": 1}
    args = read_arguments(parser, small)
    if args.ways is None:
        args.ways = [*WAYS] if args.device == "cuda" else []
    if "graph" in args.ways and args.device == "cpu":
        parser.error("--ways graph: there are CUDA graphs on a GPU alone; add --device cuda")
    torch.set_num_threads(args.threads)
    return args


def main() -> None:
    """Measure all cases and print one JSON object as the last line."""
    args = parse_arguments()
    with (
        tempfile.TemporaryDirectory() as meeting,
        connect_ranks(args.device, Path(meeting)) as ranks,
    ):
        rows, left_out = measure_cases(args, ranks)
    figures = {"cases": list(rows), "peer": "torch autograd, resident points"}
    figures |= collect_columns([*rows.values()]) | {"left_out": left_out}
    figures |= {name: getattr(args, name) for name in ("repeats", "loader_repeats", "device")}
    versions = read_versions("torch", "numpy", "numba")
    print_report(
        "htfbr_epoch", figures, threads=args.threads, versions=versions, device=args.device
    )


if __name__ == "__main__":
    main()
