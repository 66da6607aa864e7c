"""Runs whose structures are divided among ranks; run as a module, this is one of their ranks."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from forked_ranks import run_on_ranks
from pipeline_atoms.domains import division
from pipeline_core.artifacts import samples as core_samples
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.task import build_task
from pipeline_core.training.division import BySamples
from pipeline_core.training.micro_batches import MicroBatch
from pipeline_core.training.trainer import Trainer
from pipeline_egnn_esp.data import block_reader, samples
from pipeline_egnn_esp.evaluation import own_blocks
from pipeline_egnn_esp.options import ESPEvaluateOptions
from plugins.egnn_esp import trained
from plugins.egnn_esp.sizes import Sizes
from processes import find_free_port

TRAIN = {"epochs": 2, "batch_size": 2, "optimizer": {"lr": 0.01}, "ema_decay": 0.5}
LINK = {"latency": 5e-5, "bandwidth": 1e9}
INFER = {"structures": [{"name": "one"}], "work_bytes": 2**20}
WHOLE = PartitionOptions(parts="samples")
STAGES = ("train", "evaluate", "infer")
N_PORTS = 1 + len(STAGES)


def prepare(folder):
    """Write a project with two frames for training, and all before the training."""
    evaluate = {"splits": ["test"], "k_points": [1, 1, 2]}
    partition = {"parts": "graph", "link": LINK}
    return trained.prepare_run(folder, train=TRAIN, partition=partition, evaluate=evaluate)


def open_run(folder, results, **sections):
    """Return the run with results of its own, beside those of the stages before."""
    target = folder / results / "egnn_esp/small/base"
    if not target.exists():
        target.mkdir(parents=True)
        (folder / results / "datasets").symlink_to(folder / "results/datasets")
        for path in (folder / "results/egnn_esp/small/base").glob("*.h5"):
            (target / path.name).symlink_to(path)
    run = trained.open_run(folder, INFER, results)
    return replace(run, sections={**run.sections, **sections})


def cut_small(patch):
    """Read and writes few edges and blocks at a time: those of the small frames count as many.

    Everywhere alike, since what tables say where data are few follows from how sums were rounded.
    """
    patch.setattr(block_reader, "_BLOCKS", 32)
    patch.setattr(own_blocks, "_BLOCKS", 32)
    patch.setattr(samples, "_PIECE_EDGES", 100)
    patch.setattr(core_samples, "_FLUSH_BYTES", 20_000)


def compute_gradients(run, ranks, divided):
    """Return the gradient of the loss of the training structures, of each parameter."""
    task = build_task(run)
    task.module.double()
    own, ways = task.samples("train"), task.objective.weights
    if divided:
        load = division.DividedSplits(run, task, ranks).divide("train", own)
        pieces = [load(number) for number in range(len(own))]
    else:
        pieces = [MicroBatch(own.batch([number])) for number in range(len(own))]
    counts = {name: sum(task.objective.counts(p.batch)[name] for p in pieces) for name in ways}
    counts = {name: ranks.all_reduce_sum(count.double()) for name, count in counts.items()}
    for piece in pieces:
        sums = task.objective.sums(piece.predict(task.module), piece.batch)
        sum(ways[name] * sums[name] / counts[name] for name in ways).backward()
    return {
        name: ranks.all_reduce_sum(weight.grad.clone())
        for name, weight in task.module.named_parameters()
    }


def run_rank(rank, folder, n_ranks, ports):
    """Compute gradients, then do all stages; four ranks note sizes, and solve no levels."""
    os.environ["MASTER_PORT"] = ports[0]
    run, patch, largest = open_run(folder, str(n_ranks)), pytest.MonkeyPatch(), {}
    cut_small(patch)
    with connect_ranks("cpu", folder) as ranks:
        gradients = compute_gradients(run, ranks, divided=True)
    for stage, port in zip(STAGES, ports[1:], strict=True):
        os.environ["MASTER_PORT"] = port
        with pytest.MonkeyPatch.context() as watching:
            if n_ranks == 4:
                section = run.get_section("evaluate", ESPEvaluateOptions)
                section = section.model_copy(update={"dense_orbitals": 1})
                n = build_task(run).module.network.basis.n_common
                shapes = {"features": (25, trained.MODEL["channels"]), "padded blocks": (n, n)}
                with Sizes(watching, shapes) as sizes:
                    trained.call(open_run(folder, "4", evaluate=section), stage)
                largest[stage] = sizes.largest
            else:
                trained.call(run, stage)
    torch.save((gradients, largest), folder / f"{n_ranks}-{rank}.pt")


def train_whole(run):
    """Train by whole samples, whatever the section says."""
    options = run.get_section("train", TrainOptions)
    with connect_ranks(run.device, run.state) as ranks:
        task = build_task(run)
        by_samples = BySamples(run, task, options, ranks)
        Trainer(run, task, options, ranks, by_samples).fit()


def run_ranks(folder, n_ranks):
    """Do the same on some ranks, if it is not done yet."""
    if not (folder / f"{n_ranks}-0.pt").exists():
        open_run(folder, str(n_ranks))
        ports = [find_free_port() for _ in range(N_PORTS)]
        done = run_on_ranks("plugins.egnn_esp.divided", [folder, n_ranks, *ports], n_ranks)
        assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    place, number, *free = sys.argv[1:]
    run_rank(int(os.environ["RANK"]), Path(place), int(number), free)
