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

import tempfile
from pathlib import Path

import torch

from harness.command import make_parser, read_arguments
from harness.report import print_report, read_versions
from pipeline_core.project.run import Run
from pipeline_htfbr.data.points import read_points
from pipeline_htfbr.graph.build import read_structure
from subjects.htfbr.baselines import Problem, fit_ridge
from subjects.htfbr.fits import fit_baseline, fit_ours, make_part, make_runs
from subjects.htfbr.project import read_workflow

SPLITS = ("train", "val", "test")


def make_problem(run: Run) -> Problem:
    """Return the points of a run."""
    points = read_points(run.data)
    rows = {split: points.find_rows(split) for split in ("train", "val", "test")}
    parts = {split: make_part(points.x[n], points.energy[n]) for split, n in rows.items()}
    return Problem(parts, read_structure(run).leaves)


def main() -> None:
    """Fit everything and print one JSON object as the last line."""
    parser = make_parser(__doc__)
    parser.add_argument("--degrees", type=int, nargs="+", default=[3, 4])
    parser.set_defaults(dataset="ethene", rank=10)
    args = read_arguments(parser, {"dataset": "ethene_smoke", "rank": 2, "degrees": [1]})
    torch.set_num_threads(args.threads)
    experiment = read_workflow("experiments/htfbr", "ethene")
    experiment["model"]["rank"] = args.rank
    with tempfile.TemporaryDirectory() as folder:
        runs = make_runs(Path(folder), read_workflow("datasets", args.dataset), experiment)
        ours = {name: fit_ours(run, SPLITS) for name, run in runs.items()}
        problem = make_problem(runs["rank 10"])
    baselines = {
        f"degree {n}": fit_baseline(lambda p, n=n: fit_ridge(p.leaves, p, [n]), problem, SPLITS)
        for n in args.degrees
    }
    for name, row in {**ours, **baselines}.items():
        print(f"{name}: test {row['test']:.3g} hartree, {row['seconds']:.3g} s")
    last = baselines[f"degree {args.degrees[-1]}"]
    figures = {
        "ours_s": [row["seconds"] for row in ours.values()],
        "peer": f"polynomial ridge, degree {args.degrees[-1]}",
        "peer_s": last["seconds"],
        "ratio": [last["test"] / row["test"] for row in ours.values()],
        "test_rmse": ours["rank 10"]["test"],
        "test_rmse_adaptive": ours["adaptive"]["test"],
        "points": {split: len(part.y) for split, part in problem.parts.items()},
        "fits": {**ours, **baselines},
    }
    versions = read_versions("torch", "numpy", "numba")
    print_report("htfbr_ethene", figures, threads=args.threads, versions=versions)


if __name__ == "__main__":
    main()
