"""Accuracy of HT-FBR on ethene, split by trajectory, and of polynomials on the same points.

    python tests/benchmarks/htfbr_ethene.py [--degrees 3 4]

The points are those of the dataset `ethene` of `workflows`: GFN2-xTB along classical trajectories
in twelve normal modes, a stand-in for the unpublished points of the paper. Whole trajectories are
held out. Ours runs through the stages of the plugin, with the experiment of `workflows`: rank 10,
and ranks that the solver chooses. The baseline is ridge regression on Chebyshev polynomials of a
total degree, its penalty chosen on the validation points. Errors are root mean squares in hartree;
seconds are those of stage `train`, or of the fit with its choices.

The last line printed is one JSON object; `ratio` is the test error of the last degree over ours.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _htfbr_baselines import Problem, compute_rmse, fit_ridge
from _htfbr_project import call, make_project, read_workflow
from htfbr_accuracy import list_versions, make_part
from message_ops import name_hardware

from pipeline_core.run import Run
from pipeline_htfbr.points import read_points
from pipeline_htfbr.structure import read_structure

SECTIONS = ("description", "plugin", "scale", "model", "graph", "train")


def make_runs(folder: Path) -> dict[str, Run]:
    """Return the run of rank 10 and that of adaptive ranks, ready to be trained."""
    experiment = read_workflow("experiments/htfbr", "ethene")
    content = {name: experiment[name] for name in SECTIONS}
    content["variants"] = {"adaptive": {"model": {"rank": "adaptive"}}}
    project = make_project(folder, read_workflow("datasets", "ethene"), content)
    runs = {"rank 10": project.run("fit"), "adaptive": project.run("fit", "adaptive")}
    call(runs["rank 10"], "data")
    for run in runs.values():
        call(run, "graph")
        call(run, "partition")
    return runs


def fit_ours(run: Run) -> dict[str, Any]:
    """Train and evaluate; return errors and facts."""
    summary, seconds = call(run, "train")
    call(run, "evaluate")
    errors = json.loads(run.metrics.read_text())["surface"]["errors"]
    result = {split: errors[split]["hartree"]["rmse"] for split in ("train", "val", "test")}
    facts = {name: summary[name] for name in ("parameters", "node_ranks", "degrees")}
    return {**result, **facts, "seconds": seconds}


def make_problem(run: Run) -> Problem:
    """Return the points of a run."""
    points = read_points(run.data)
    rows = {split: points.find_rows(split) for split in ("train", "val", "test")}
    parts = {split: make_part(points.x[n], points.energy[n]) for split, n in rows.items()}
    return Problem(parts, read_structure(run).leaves)


def fit_polynomials(problem: Problem, degree: int) -> dict[str, Any]:
    """Fit all products of one total degree; return errors and facts."""
    begin = time.perf_counter()
    fitted = fit_ridge(problem.leaves, problem, [degree])
    seconds = time.perf_counter() - begin
    result = {split: compute_rmse(problem, fitted, split) for split in ("train", "val", "test")}
    return {**result, **fitted.chosen, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--degrees", type=int, nargs="+", default=[3, 4])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = make_runs(Path(folder))
        ours = {name: fit_ours(run) for name, run in runs.items()}
        problem = make_problem(runs["rank 10"])
    baselines = {f"degree {n}": fit_polynomials(problem, n) for n in args.degrees}
    for name, row in {**ours, **baselines}.items():
        print(f"{name}: test {row['test']:.3g} hartree, {row['seconds']:.3g} s")
    last = baselines[f"degree {args.degrees[-1]}"]
    report = {
        "name": "htfbr_ethene",
        "ours_s": [row["seconds"] for row in ours.values()],
        "peer": f"polynomial ridge, degree {args.degrees[-1]}",
        "peer_s": last["seconds"],
        "ratio": [last["test"] / row["test"] for row in ours.values()],
        "test_rmse": ours["rank 10"]["test"],
        "test_rmse_adaptive": ours["adaptive"]["test"],
        "points": {split: len(part.y) for split, part in problem.parts.items()},
        "fits": {**ours, **baselines},
        "threads": torch.get_num_threads(),
        "hardware": name_hardware("cpu"),
        "versions": list_versions(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
