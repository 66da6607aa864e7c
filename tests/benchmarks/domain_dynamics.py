"""Molecular dynamics of one large crystal over 4 ranks, beside one rank, and killed on its way.

    python tests/benchmarks/domain_dynamics.py [--small] [--full] [--steps 40]

MACE of 16 channels learns hafnia from the data of this repository, in float64. At constant energy
2,592 atoms of it, or 20,736 with `--full`, then move from the same start on one rank of two threads
and on four ranks, which share the cores. A third run, on four ranks again, is killed halfway and
started once more.

`drift` (meV an atom and ps) and `fluctuation` (meV an atom) say how the total energy is conserved,
`migrated_atoms` how many atoms have changed their rank. `energy_difference` is the largest
difference of the potential energy between one rank and four, in meV an atom, and `same_bits` says
whether all that the killed run has written equals what the other one has. Times are not measured.
The last line printed is one JSON object.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from harness.command import make_parser, read_arguments
from harness.engine import call_engine, list_cells, start_engine, write_project
from harness.report import print_report, read_versions
from pipeline_core.system.locks import locate_lock, read_holder

EXPERIMENT = {
    "plugin": "mace",
    "seed": 0,
    "model": {
        "channels": 16,
        "lmax": 2,
        "correlation": 2,
        "radial_features": [16, 16],
    },
    "graph": {"cutoff": 4.0},
    "train": {
        "epochs": 40,
        "batch_size": 8,
        "precision": "64-true",
        "optimizer": {"name": "adam", "lr": 1e-2},
        "loss": {"energy": {"kind": "huber"}, "forces": {"kind": "huber", "weight": 10.0}},
    },
}
RANKS = 4
THREADS = 2


def make_project(folder: Path, copies: tuple[int, int, int], steps: int, epochs: int) -> None:
    """Write a dataset of small cells, and an experiment whose dynamics have a large one; train."""
    sources = [list_cells("train", "00?"), list_cells("val", "01[0-4]")]
    dynamics = {
        "name": "nve",
        "ensemble": "nve",
        "steps": steps,
        "temperature": 600.0,
        "start": "val:0",
        "repeat": list(copies),
        "every": 10,
        "restart_every": steps // 4,
    }
    experiment = EXPERIMENT | {"infer": {"md": [dynamics]}}
    experiment["train"] = EXPERIMENT["train"] | {"epochs": epochs}
    dataset = {"sources": sources, "labels": ["energy", "forces"]}
    write_project(folder, dataset, {"mace/large": experiment})
    call_engine(folder, "data", "--dataset", "cells")
    for words in (["graph"], ["partition"], ["train", "--device", "cpu"]):
        call_engine(folder, *words, "--experiment", "mace/large", threads=THREADS)


def start_dynamics(folder: Path, results: str, ranks: int) -> subprocess.Popen:
    """Start the dynamics on one rank, or on several of one thread."""
    words = ["infer", "--experiment", "mace/large", "--device", "cpu"]
    threads = 1 if ranks > 1 else THREADS
    return start_engine(
        folder, *words, ranks=ranks, threads=threads, results=results, stdout=sys.stderr
    )


def share_training(folder: Path, results: str) -> Path:
    """Make a folder of results that has the trained model; return that of the run."""
    shutil.copytree(folder / "results", folder / results)
    return folder / results / "mace/large/base"


def kill_after(process: subprocess.Popen, run: Path, step: int) -> int:
    """Kill a run once it could go on from a step; return the step from which it will."""
    restart = run / "md/.nve.restart/restart.h5"
    while process.poll() is None:
        if restart.exists():
            with h5py.File(restart) as file:
                if (reached := int(file.attrs["step"])) >= step:
                    writer = read_holder(locate_lock(run, "infer"))
                    assert writer is not None
                    os.killpg(process.pid, signal.SIGKILL)
                    os.kill(writer.pid, signal.SIGKILL)  # rank 0; the others end without it
                    process.wait()
                    return reached
        time.sleep(0.02)
    raise RuntimeError("the run ended before it could be killed")


def read_run(run: Path) -> dict:
    """Return what a run has written: its summary, its frames, the bytes of its trajectory."""
    lines = (run / "records.jsonl").read_text().splitlines()
    summary = [one for one in map(json.loads, lines) if one["stage"] == "infer"][-1]["summary"]
    with h5py.File(run / "inference.h5") as file:
        arrays = {name: data for name, data in file["nve"].items() if hasattr(data, "dtype")}
        frames = {name: data[()] for name, data in arrays.items()}
    trajectory = (run / "md/nve.extxyz").read_bytes()
    return {"summary": summary["nve"], "frames": frames, "trajectory": trajectory}


def have_same_bits(one: dict, other: dict) -> bool:
    """Return whether two runs have written the same."""
    same = all(np.array_equal(one["frames"][n], other["frames"][n]) for n in one["frames"])
    return same and one["trajectory"] == other["trajectory"]


def simulate(folder: Path, steps: int) -> dict[str, dict]:
    """Do the three runs; return what each has written."""
    runs = {}
    for name, ranks in (("one", 1), ("four", RANKS), ("killed", RANKS)):
        place = share_training(folder, name)
        process = start_dynamics(folder, name, ranks)
        if name == "killed":
            reached = kill_after(process, place, steps // 2)
            print(f"killed after step {reached}", file=sys.stderr, flush=True)
            process = start_dynamics(folder, name, ranks)
        if process.wait():
            raise RuntimeError(f"{' '.join(process.args)} ended with {process.returncode}")
        runs[name] = read_run(place)
        print(name, json.dumps(runs[name]["summary"]), file=sys.stderr, flush=True)
    return runs


def main() -> None:
    """Do all runs and print one JSON object as the last line."""
    parser = make_parser(__doc__, full="a cell of 20,736 atoms; an hour")
    parser.add_argument("--steps", type=int, default=40)
    parser.set_defaults(copies=(6, 6, 6), epochs=40)
    small = {"copies": (3, 3, 3), "steps": 20, "epochs": 1}
    args = read_arguments(parser, small, {"copies": (12, 12, 12), "steps": 200})
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_project(folder, args.copies, args.steps, args.epochs)
        runs = simulate(folder, args.steps)
    one, four = runs["one"], runs["four"]
    energies = [run["frames"]["potential"] for run in (one, four)]
    n_atoms = one["summary"]["n_atoms"]
    figures = {
        "n_atoms": n_atoms,
        "steps": args.steps,
        "drift": {n: runs[n]["summary"]["drift_meV_per_atom_per_ps"] for n in runs},
        "fluctuation": {n: runs[n]["summary"]["fluctuation_meV_per_atom"] for n in runs},
        "energy_difference": 1000 * float(abs(energies[0] - energies[1]).max()) / n_atoms,
        "migrated_atoms": four["summary"]["migrated_atoms"],
        "neighbour_searches": four["summary"]["neighbour_searches"],
        "same_bits": have_same_bits(four, runs["killed"]),
        "runs": {name: run["summary"] for name, run in runs.items()},
    }
    versions = read_versions("torch", "numpy")
    print_report("domain_dynamics", figures, threads=THREADS, versions=versions)


if __name__ == "__main__":
    main()
