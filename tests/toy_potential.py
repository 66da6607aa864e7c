"""A potential of pairs, small enough to train in a second, as a plugin with synthetic samples.

Labels come from a Morse potential, P. M. Morse, Phys. Rev. 34, 57 (1929). Run as a program it
trains the experiment of a folder, so that tests can start ranks and kill them.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from fake_packages import ATOMS
from forked_ranks import run_on_ranks
from pipeline_atoms.potential.potential import Potential
from pipeline_atoms.potential.start_errors import explain_start
from pipeline_core import hookimpl
from pipeline_core.batch import Batch, collate
from pipeline_core.config.sections import PartitionOptions, Section, TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import find_world
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.stages.builtin import load_registry
from pipeline_core.task import Outputs, Quantity, Sizes, Task, build_task
from pipeline_core.training.balance.partitioning import read_shares, write_partition
from pipeline_core.training.division import make_sampler
from pipeline_core.training.objective import LabelObjective
from pipeline_core.training.precision import choose_dtype
from pipeline_core.training.profile import StepClock
from pipeline_core.training.trainer import train_run


class SleepClock:
    """Shows how long this rank has slept, and when ranks have met how long any of them has.

    With it a profile of sleeping ranks is exact, on however busy a machine.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def install(self) -> None:
        """Make it the clock of trainings and the sleep of models in this process."""

        def meet(ranks: Ranks) -> None:
            self.now = max(ranks.gather(self.now))

        time.sleep, Ranks.barrier = self.sleep, meet
        StepClock._read_clock = lambda _: self.now


EPOCHS_HEARD: list[dict[str, Any]] = []
_batches_made = count(1)


class ToyOptions(Section):
    """Of the model and of its samples."""

    width: int = 8
    n_train: int = 13
    n_val: int = 5
    missing: bool = False
    """Whether some samples lack forces."""
    seconds_per_edge: float = 0.0
    """What a training step sleeps, s."""
    cost: Literal["rows", "samples"] = "rows"
    """What shares have equal numbers of: atoms and edges, or samples, whatever their sizes."""
    drawn: bool = False
    """Whether each epoch has training samples of its own."""


class PairPotential(Potential):
    """Energy as a sum over edges of a network of the distance; all else has no influence."""

    def __init__(self, width: int, seconds_per_edge: float = 0.0) -> None:
        super().__init__(("energy", "forces"))
        self._seconds_per_edge = seconds_per_edge
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("transposed", torch.arange(6.0).view(2, 3).T)
        self.register_buffer("empty", torch.zeros(0, dtype=torch.int64))

    def energies(self, batch: Batch, vectors: Tensor) -> Outputs:
        if self.training:
            time.sleep(self._seconds_per_edge * len(vectors))
        pairs = self.net(vectors.norm(dim=1, keepdim=True))[:, 0]
        energy = pairs.new_zeros(len(batch["cell"])).index_add(0, batch["edge_sample"], pairs)
        return {"energy": energy}

    def load_published(self, name: str) -> None:
        if name != "ones":
            raise ValueError(f"unknown published weights {name!r}")
        for parameter in self.parameters():
            nn.init.ones_(parameter)


def sample(seed: int, missing: bool) -> dict[str, np.ndarray]:
    """A cluster of 2 to 6 atoms with all its pairs, and its Morse energy and forces."""
    generator = np.random.default_rng(seed)
    n = int(generator.integers(2, 7))
    positions = generator.normal(size=(n, 3)) * 1.5
    receiver, sender = np.nonzero(~np.eye(n, dtype=bool))
    vectors = positions[sender] - positions[receiver]
    distances = np.linalg.norm(vectors, axis=1)
    decay = np.exp(-(distances - 1.5))
    slopes = 2 * (1 - decay) * decay  # of (1 - decay)^2, each pair counted twice
    forces = np.zeros((n, 3))
    np.add.at(forces, receiver, (slopes / distances)[:, None] * vectors)
    return {
        "atomic_numbers": np.ones(n, np.int32),
        "positions": positions,
        "cell": np.zeros((3, 3)),
        "pbc": np.zeros(3, bool),
        "edge_index": np.stack([receiver, sender], 1).astype(np.int32),
        "edge_shift": np.zeros((len(receiver), 3), np.int16),
        "energy": np.array(0.5 * ((1 - decay) ** 2).sum()),
        "forces": np.full((n, 3), np.nan) if missing and seed % 3 == 0 else forces,
    }


def meet_fate() -> str:
    """Meet what the environment names, at its batch and on its rank ("9 dies 0"); return it."""
    batch, fate, rank = os.environ.get("TOY_FATE", "0 lives 0").split()
    if next(_batches_made) != int(batch) or find_world().rank != int(rank):
        return "lives"
    if fate == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fate == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fate == "thirsts":
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    elif fate == "fills":  # the limit on the size of files makes writes fail as a full disk does
        resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))
    elif fate == "fails":
        raise RuntimeError("a sample is lost")
    return fate


class ToySamples:
    """Clusters made from their number."""

    def __init__(self, numbers: range, missing: bool, dtype: torch.dtype) -> None:
        self._samples = [sample(number, missing) for number in numbers]
        self._dtype = dtype

    def __len__(self) -> int:
        return len(self._samples)

    def sizes(self) -> Sizes:
        return {
            "atom": np.array([len(s["atomic_numbers"]) for s in self._samples]),
            "edge": np.array([len(s["edge_index"]) for s in self._samples]),
        }

    def batch(self, indices: Sequence[int]) -> Batch:
        fate = meet_fate()
        batch = collate([self._samples[i] for i in indices], self._dtype)
        return batch | {"energy": batch["energy"] + 1e200} if fate == "diverges" else batch


class DrawnToySamples(ToySamples):
    """Clusters whose energies are higher by 1 in each epoch."""

    epoch = 0

    def of_epoch(self, epoch: int) -> DrawnToySamples:
        result = copy(self)
        result.epoch = epoch
        return result

    def batch(self, indices: Sequence[int]) -> Batch:
        batch = super().batch(indices)
        return batch | {"energy": batch["energy"] + self.epoch}


def build_toy_task(options: ToyOptions, train: TrainOptions) -> Task:
    quantities = (Quantity("energy", per_atom=True), Quantity("forces"))
    first_val = 1000
    splits = {
        "train": range(options.n_train),
        "val": range(first_val, first_val + options.n_val),
        "test": range(0),
    }
    dtype = choose_dtype(train.precision)
    kinds = {"train": DrawnToySamples if options.drawn else ToySamples}
    return Task(
        module=PairPotential(options.width, options.seconds_per_edge),
        objective=LabelObjective(train.loss, quantities),
        samples=lambda split: kinds.get(split, ToySamples)(splits[split], options.missing, dtype),
        cost=lambda sizes: (
            1.0 * sizes["atom"] + sizes["edge"]
            if options.cost == "rows"
            else np.ones(len(sizes["atom"]))
        ),
        explain_start=partial(explain_start, train),
        quantities=quantities,
        metadata={"options": options.model_dump(mode="json"), "elements": ["H"]},
    )


@hookimpl
def model() -> ModelInfo:
    return ModelInfo(name="toy", summary="Pairs.", citation="none", options=ToyOptions)


@hookimpl
def task(run: Run) -> Task:
    return build_toy_task(
        run.get_section("model", ToyOptions), run.get_section("train", TrainOptions)
    )


@hookimpl
def epoch(record: dict[str, Any]) -> None:
    EPOCHS_HEARD.append(record)


LOSS = {"energy": {"kind": "mse"}, "forces": {"kind": "huber", "weight": 2.0, "delta": 0.5}}


def make_run(folder: Path, train: dict[str, Any] | None = None, **sections: Any) -> Run:
    """Write an experiment into a folder and load it; its partition is made too."""
    defaults = {
        "epochs": 3,
        "batch_size": 4,
        "precision": "64-true",
        "loss": LOSS,
        "optimizer": {"lr": 1e-2},
    }
    content = {
        "description": "Pairs.",
        "plugin": "toy",
        "train": defaults | (train or {}),
        **sections,
    }
    path = folder / "workflows/experiments/pairs.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    run = load_run(folder)
    write_partition(run, build_task(run), run.get_section("partition", PartitionOptions))
    return run


def train(folder: Path, train: dict[str, Any] | None = None, **sections: Any) -> Run:
    """Write an experiment, as `make_run`, and train it."""
    run = make_run(folder, train, **sections)
    train_run(run)
    return run


def load_run_on_cpu(folder: Path) -> Run:
    """Load a run in a process that has read nothing before."""
    return replace(load_run(folder), device="cpu")


def sum_edges(run: Run, n_ranks: int) -> NDArray[np.int64]:
    """Return the edges of each rank in each step of the first epoch, (n_steps, n_ranks)."""
    shares = read_shares(run.partition, "train", len(build_task(run).samples("train")))
    sampler = make_sampler(shares, run.get_section("train", TrainOptions), run.seed)
    return sampler.plan_epoch(0, n_ranks).sum_loads(shares.sizes["edge"])


def die(folder: Path) -> Run:
    """End as a process that the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)
    return load_run(folder)


def load_run(folder: Path) -> Run:
    points = [ATOMS, EntryPoint("toy", "toy_potential", "pipeline_core")]
    return Project(folder / "workflows", folder / "results", load_registry(points, [])).run("pairs")


def start_on_ranks(folder: Path, n_ranks: int, **extra: str) -> subprocess.CompletedProcess[str]:
    """Train the experiment of a folder in several processes.

    Args:
        folder: As for `load_run`.
        n_ranks: Number of processes.
        **extra: Variables of their environment.
    """
    return run_on_ranks("toy_potential", [folder, "cpu"], n_ranks, **extra)


def train_and_kill(folder: Path, at_batch: int) -> None:
    """Train in a process that is killed while it makes a batch; the first one is the probe."""
    assert start_on_ranks(folder, 1, TOY_FATE=f"{at_batch} dies 0").returncode != 0


def train_on_ranks(folder: Path, n_ranks: int, **extra: str) -> str:
    """Train the experiment of a folder to its end on several ranks; return what they said."""
    done = start_on_ranks(folder, n_ranks, **extra)
    assert done.returncode == 0, done.stderr
    return done.stderr


if __name__ == "__main__":
    folder, device = sys.argv[1:]
    if "TOY_SLEEP_CLOCK" in os.environ:
        SleepClock().install()
    run = replace(load_run(Path(folder)), device=device)
    if os.environ.get("TOY_DIFFERS") == str(find_world().rank):  # has read another experiment
        train = run.sections["train"].model_copy(update={"batch_size": 3})
        run = replace(run, sections={**run.sections, "train": train})
    print(train_run(run))
