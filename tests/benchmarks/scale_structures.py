"""Import, graphs, costs and reading of 10^4, 10^5 and, with --full, 10^6 small crystals.

    python tests/benchmarks/scale_structures.py [--full] [--processes 2] [--folder FOLDER]

The crystals are those of a large public set in kind: 2 to 12 atoms of some of 20 elements, eleven
frames of each material that differ by the displacements of their atoms, in ten files of extended
XYZ, divided so that no material is in two splits. Every atom is tied to its site by a spring, so
that energies, forces and stress agree.

Each stage is a process of its own, so that its memory is its own: `peak_gb` is the most that any
process held, workers included. It first does the same with 110 crystals, so that what it loads does
not count. `read` is what a rank does in training: it makes batches of its share of the samples.
`pack` plans an epoch of 10^7 samples of drawn costs. The last line printed is one JSON object:
`exponent` is the largest over data, graph and partition of the slope of log time over log number of
structures, of processor time, which other work on the machine changes little.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from harness.command import count_cores, make_parser, read_arguments
from harness.report import print_report, read_versions
from harness.springs import draw_species, format_frame

SIZES, FULL = (10_000, 100_000), 1_000_000
N_FILES, N_FRAMES = 10, 11  # files of a set; frames of a material, as in MPtrj
BLOCKS = ((1, 1, 2), (1, 1, 3), (1, 2, 2), (1, 2, 3), (2, 2, 2), (1, 3, 3), (2, 2, 3))
DATASET = """\
description: Small crystals of springs
sources: [{path: "raw/*.xyz", group: material}]
split: {method: group, val: 0.1, test: 0.1}
"""
EXPERIMENT = """\
description: What a training reads
plugin: mace
dataset: crystals
scale: laptop
graph: {cutoff: 4.5}
model: {channels: 8, max_l: 1, lmax: 2, correlation: 2}
partition: {samples_per_rank: 32}
train: {batch_size: 64, loss: {energy: {}, forces: {}}}
"""
STAGES = ("data", "graph", "partition", "read")
GROWING = STAGES[:3]
WARM = 110
PACKED, RANKS, BATCH, READ = 10_000_000, 64, 32, 10_000


def write_crystals(folder: Path, n_structures: int) -> None:
    """Write the raw files; a material stays within one file."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(n_structures)
    n_each = -(-n_structures // N_FILES)
    for number in range(N_FILES):
        with (folder / f"{number:03}.xyz").open("w") as file:
            for i in range(n_each):
                if i % N_FRAMES == 0:
                    material = number * n_each + i
                    block = BLOCKS[rng.integers(len(BLOCKS))]
                    species = draw_species(block, rng)
                file.write(format_frame(species, block, material, rng))


def make_project(folder: Path, n_structures: int) -> Path:
    """Write a project with a set of crystals."""
    project = folder / f"of_{n_structures}"
    datasets, experiments = project / "workflows/datasets", project / "workflows/experiments/mace"
    write_crystals(datasets / "raw", n_structures)
    experiments.mkdir(parents=True)
    (datasets / "crystals.yaml").write_text(DATASET)
    (experiments / "crystals.yaml").write_text(EXPERIMENT)
    return project


def time_stage(project: Path, stage: str) -> dict:
    """Run a stage, in the process that is measured; return wall and processor time."""
    run_stage(project.with_name(f"of_{WARM}"), stage)
    begin, used = time.perf_counter(), count_processor_seconds()
    summary = run_stage(project, stage)
    times = {"seconds": time.perf_counter() - begin, "cpu_s": count_processor_seconds() - used}
    return times | {"summary": summary}


def count_processor_seconds() -> float:
    """Return the processor time of this process and its former children."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)


def run_stage(project: Path, stage: str) -> dict:
    """Run a stage of a project; return what it says."""
    from pipeline_core.project.project import Project
    from pipeline_core.stages.builtin import load_registry

    registry = load_registry()
    run = Project(project / "workflows", project / "results", registry).run("mace/crystals")
    if stage == "data":
        return registry.select_hook("data", None)(run=run.dataset)
    if stage == "read":
        return read_share(run)
    return registry.select_hook(stage, "mace")(run=run)


def read_share(run) -> dict:
    """Make the batches of a rank, of some 10^4 samples at any size; return what one takes."""
    from pipeline_core.config.sections import TrainOptions
    from pipeline_core.task import build_task
    from pipeline_core.training.balance.partitioning import read_shares
    from pipeline_core.training.division import make_sampler

    samples = build_task(run).samples("train")
    shares = read_shares(run.partition, "train", len(samples))
    sampler = make_sampler(shares, run.get_section("train", TrainOptions), run.seed)
    plan = sampler.plan_epoch(0, max(1, len(samples) // READ))
    done = 0
    begin = time.perf_counter()
    for step in range(len(plan)):
        share = plan.share(step, 0)
        samples.batch(share.tolist())
        done += len(share)
        if done >= READ:
            break
    return {"samples": done, "seconds_per_sample": (time.perf_counter() - begin) / done}


def pack(n_samples: int) -> dict:
    """Do what the partition stage does for drawn costs, and plan an epoch of a training."""
    from pipeline_core.training.balance.partitioning import Shares
    from pipeline_core.training.balance.sampler import Sampler
    from pipeline_kernels.packing import split_by_capacity

    rng = np.random.default_rng(0)
    costs = np.rint(rng.lognormal(5.0, 0.8, n_samples)) + 2.0
    times = {}
    begin = time.perf_counter()
    bins = split_by_capacity(costs, 16 * float(costs.mean()))
    Shares(costs, bins, np.inf).list_batches(0, RANKS)
    times["evaluation_batches_s"] = time.perf_counter() - begin
    for batch_by in ("count", "cost"):
        sampler = Sampler(costs=costs, batch_size=BATCH * RANKS, batch_by=batch_by)
        begin = time.perf_counter()
        plan = sampler.plan_epoch(0, RANKS)
        times[f"plan_by_{batch_by}_s"] = time.perf_counter() - begin
    return {"samples": n_samples, "bins": int(bins.max()) + 1, "steps": len(plan), **times}


def measure(*arguments: str) -> dict:
    """Run this file for one stage; return what it said, its time and its memory."""
    command = [sys.executable, __file__, *arguments]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(shown.splitlines()[-1])


def measure_self(work) -> None:
    """Print what a function returns, and the most memory that a process of it held."""
    result = work()
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(kind).ru_maxrss for kind in kinds)
    print(json.dumps(result | {"peak_gb": peak * 1024 / 1e9}))


def fit_exponent(times: dict[int, float]) -> float:
    """Return the slope of log time over log number."""
    return float(np.polyfit(np.log([*times]), np.log([*times.values()]), 1)[0])


def main() -> None:
    """Measure all sizes and print one JSON object as the last line."""
    parser = make_parser(__doc__, full="10^6 structures, too; 5 GB of disk")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--packed", type=int, default=PACKED, help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, help="cores that stages may use; all if none")
    parser.add_argument("--folder", type=Path, help="where to put files; 5 GB with --full")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--project", type=Path, help=argparse.SUPPRESS)
    small = {"sizes": [200, 400], "packed": 10_000}
    args = read_arguments(parser, small, {"sizes": [*SIZES, FULL]})
    if args.processes:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.processes])
    if args.stage == "pack":
        measure_self(lambda: pack(args.packed))
        return
    if args.stage:
        measure_self(lambda: time_stage(args.project, args.stage))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        stages = {}
        warm = make_project(Path(folder), WARM)
        for stage in STAGES:
            run_stage(warm, stage)
        for n in args.sizes:
            project = make_project(Path(folder), n)
            for stage in STAGES:
                stages[n, stage] = measure("--stage", stage, "--project", str(project))
                print(n, stage, stages[n, stage], file=sys.stderr, flush=True)
    packed = measure("--stage", "pack", "--packed", str(args.packed))
    exponents = {
        stage: fit_exponent({n: stages[n, stage]["cpu_s"] for n in args.sizes}) for stage in GROWING
    }
    figures = {
        "exponent": max(exponents.values()),
        "peak_gb": max(one["peak_gb"] for one in stages.values()),
        "exponents": exponents,
        "stages": {
            stage: {
                str(n): {key: stages[n, stage][key] for key in ("seconds", "cpu_s", "peak_gb")}
                for n in args.sizes
            }
            for stage in STAGES
        },
        "read_s_per_sample": {
            str(n): stages[n, "read"]["summary"]["seconds_per_sample"] for n in args.sizes
        },
        "packed": packed,
        "processes": count_cores(),
    }
    versions = read_versions("numpy", "h5py", "vesin")
    print_report("scale_structures", figures, threads=None, versions=versions)


if __name__ == "__main__":
    main()
