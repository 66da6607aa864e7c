"""An epoch that mixes small and large cells, on 1, 2 and 4 ranks: losses, and memory as planned.

    python tests/benchmarks/domain_training.py [--small] [--models mace chgnet]

Hafnia: cells of 12 atoms from the data of this repository, and copies of one of them side by side,
3,024 atoms to train on and 96 to validate by. MACE and CHGNet of 16 channels learn energies and
forces in float64 with `partition.parts: graph`, each rank on one thread. `loss_difference` is the
largest relative difference between the losses of one rank and of several, and `memory_error` that
between the memory of the fullest rank that `pipeline-core plan` predicts and the one that the
training records. Memory does not depend on what else the machine does; times do, and are not
compared. The last line printed is one JSON object.
"""

import json
import sys
import tempfile
from pathlib import Path

from harness.command import make_parser, read_arguments
from harness.engine import call_engine, list_cells, write_project
from harness.report import print_report, read_versions

RANKS = (1, 2, 4)
CUTOFFS = {"cutoff": 4.5, "angle_cutoff": 2.8}
FEATURES = {f"{kind}_features": 16 for kind in ("atom", "bond", "angle", "hidden")}
MODELS = {
    "mace": {
        "model": {"channels": 16, "lmax": 2, "correlation": 2},
        "graph": {"cutoff": 4.5},
    },
    "chgnet": {
        "model": {**FEATURES, "readout_features": [16]},
        "graph": CUTOFFS,
    },
}
TRAIN = {
    "epochs": 1,
    "batch_size": 4,
    "precision": "64-true",
    "loss": {"energy": {"kind": "mse"}, "forces": {"kind": "mse"}},
}
LARGE = (6, 6, 7)
SMALL = (2, 2, 2)
"""Copies of a cell of 12 atoms."""


def make_project(folder: Path, copies: tuple[int, int, int]) -> None:
    """Write a dataset of small and large cells, and an experiment of each model; import them."""
    sources = [
        list_cells("train", "00[0-7]"),
        list_cells("val", "00[8-9]"),
        list_cells("train", "000", repeat=list(copies)),
        list_cells("val", "008", repeat=[2, 2, 2]),
    ]
    kind = {"train": TRAIN, "partition": {"parts": "graph"}}
    experiments = {model: {"plugin": model, **kind, **own} for model, own in MODELS.items()}
    write_project(folder, {"sources": sources, "labels": ["energy", "forces"]}, experiments)
    call_engine(folder, "data", "--dataset", "cells")


def train(folder: Path, model: str, n_ranks: int) -> dict:
    """Train on some ranks; return the losses and the memory of each of them."""
    run, own = folder / "results" / model / "base", f"{model}_on_{n_ranks}"
    place = folder / own / model / "base"
    place.mkdir(parents=True)
    (folder / own / "datasets").symlink_to(folder / "results/datasets")
    for name in ("graph.h5", "partition.h5"):
        (place / name).symlink_to(run / name)
    words = ["train", "--experiment", model, "--device", "cpu"]
    call_engine(folder, *words, ranks=n_ranks, results=own)
    record = json.loads((place / "history.jsonl").read_text().splitlines()[-1])
    lines = (place / "records.jsonl").read_text().splitlines()
    summary = next(one for one in map(json.loads, lines) if one["stage"] == "train")["summary"]
    losses = {split: record[split] for split in ("train", "val")}
    return {"losses": losses, "memory_gb": summary["memory_gb"], "step_s": record["seconds"] / 3}


def compare_losses(one: dict, other: dict) -> float:
    """Return the largest relative difference between two sets of losses."""
    pairs = [(one[split][name], other[split][name]) for split in one for name in one[split]]
    return max(abs(ours / theirs - 1) for ours, theirs in pairs)


def measure(folder: Path, model: str, ranks: tuple[int, ...]) -> dict:
    """Plan a training, then do it on each number of ranks."""
    for stage in ("graph", "partition"):
        call_engine(folder, stage, "--experiment", model)
    words = ["plan", model, "--ranks", str(max(ranks)), "--device", "cpu", "--json"]
    plan = json.loads(call_engine(folder, *words).splitlines()[-1])
    rows = {}
    for planned in plan["ranks"]:
        n = planned["ranks"]
        row = rows[str(n)] = train(folder, model, n)
        row["planned_gb"] = planned["memory"] / 1e9
        row["planned_step_s"] = planned["step_s"]
        row["memory_error"] = row["planned_gb"] / max(row["memory_gb"]) - 1
        row["loss_difference"] = compare_losses(row["losses"], rows["1"]["losses"])
        print(model, n, json.dumps(row), file=sys.stderr, flush=True)
    return {"measured_parts": plan["measured"], "ranks": rows}


def main() -> None:
    """Measure all models and print one JSON object as the last line."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.set_defaults(copies=LARGE, ranks=RANKS)
    args = read_arguments(parser, {"copies": SMALL, "models": ["mace"], "ranks": (1, 2)})
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_project(folder, args.copies)
        models = {model: measure(folder, model, args.ranks) for model in args.models}
    rows = [row for model in models.values() for row in model["ranks"].values()]
    figures = {
        "loss_difference": max(row["loss_difference"] for row in rows),
        "memory_error": max(abs(row["memory_error"]) for row in rows),
        "models": models,
    }
    print_report("domain_training", figures, threads=1, versions=read_versions("torch", "numpy"))


if __name__ == "__main__":
    main()
