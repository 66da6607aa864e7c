"""A plugin whose potential of pairs has to be learned, and a committee of it for argon."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import ase.build
import numpy as np
import torch
from torch import nn

from core.evaluation.argon import write_data, write_project
from core.inference.lennard_jones import GRAPH, make_ase_lennard_jones
from pipeline_core import hookimpl
from pipeline_core.atomistic import build_potential_task
from pipeline_core.balance.partitioning import write_partition
from pipeline_core.builtin import load_registry
from pipeline_core.config.sections import PartitionOptions, Section
from pipeline_core.evaluation.evaluate import evaluate_run
from pipeline_core.graphs import write_graphs
from pipeline_core.model_info import ModelInfo
from pipeline_core.potential import Potential
from pipeline_core.project import Project
from pipeline_core.run import Run
from pipeline_core.task import Task, build_task
from pipeline_core.training.trainer import train_run


class PairOptions(Section):
    """Of the model."""

    width: int = 16


class LearnedPairs(Potential):
    """Energy as a sum over pairs of a network of their distance, smooth at the cutoff."""

    def __init__(self, width: int) -> None:
        super().__init__(("energy", "forces"))
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def energies(self, batch, vectors):
        distance = vectors.norm(dim=1, keepdim=True)
        switch = torch.cos(0.5 * np.pi * distance / GRAPH.cutoff) ** 2
        pairs = (0.1 * switch * self.net(distance - 4.0))[:, 0]
        energy = pairs.new_zeros(len(batch["cell"])).index_add(0, batch["edge_sample"], pairs)
        return {"energy": energy}


@hookimpl
def model() -> ModelInfo:
    return ModelInfo(
        name="learned_pairs",
        summary="Pairs.",
        citation="none",
        options=PairOptions,
        predicts=("energy", "forces"),
    )


@hookimpl
def task(run: Run) -> Task:
    return build_potential_task(run, LearnedPairs(run.options.width))


def make_crystals(n: int) -> list[ase.Atoms]:
    """Return cold crystals of argon around the equilibrium."""
    rng = np.random.default_rng(11)
    frames = []
    for _ in range(n):
        atoms = ase.build.bulk("Ar", "fcc", rng.uniform(5.2, 5.6), cubic=True)
        atoms.rattle(rng.uniform(0.05, 0.2), rng=rng)
        atoms.info["group"] = "cold"
        atoms.calc = make_ase_lennard_jones()
        frames.append(atoms)
    return frames


def train_committee(folder: Path, infer: dict, n: int = 180, epochs: int = 40) -> Run:
    """Import, train and evaluate a committee of four; return its first run."""
    content = {
        "description": "Pairs.",
        "plugin": "learned_pairs",
        "dataset": "crystals",
        "members": 4,
        "graph": {"cutoff": GRAPH.cutoff},
        "train": {
            "epochs": epochs,
            "batch_size": 5,
            "optimizer": {"lr": 1e-2},
            "schedule": {"name": "cosine"},
            "loss": {"energy": {"kind": "mse"}, "forces": {"kind": "mse", "weight": 100.0}},
        },
        "infer": infer,
    }
    write_project(folder, "pairs", content)
    points = [EntryPoint("learned_pairs", "core.inference.learned_pairs", "pipeline_core")]
    project = Project(folder / "workflows", folder / "results", load_registry(points))
    run = replace(project.run("pairs"), device="cpu")
    codes = np.array([0] * (n // 3) + [1] * (n // 3) + [2] * (n - 2 * (n // 3)), np.int8)
    write_data(run.data, make_crystals(n), codes, missing=False)
    write_graphs(run.data, run.graph, GRAPH, {})
    for member in (*run.members, run):
        section = member.get_section("partition", PartitionOptions)
        write_partition(member, build_task(member), section)
        train_run(replace(member, device="cpu"))
        evaluate_run(replace(member, device="cpu"))
    return run
