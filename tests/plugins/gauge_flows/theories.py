"""Lattice gauge theories, and files of their configurations, that tests of data share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_core.project.run import DatasetRun
from pipeline_gauge_flows.data.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.data.ensembles.sweeps import Sweeps
from pipeline_gauge_flows.data.formats import Configuration, write_ildg, write_nersc
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot

SMALL = {"lattice": {"extents": [4, 4]}, "action": {"beta": 6.0}}


QUARKS = {"beta": 2.0, "fermions": {"kappa": 0.3, "two_kappa_mu": 0.3}}


FILES = {"lattice": {"extents": [2, 3, 2, 3]}, "action": {"beta": 4.0}}


def read_report(run: DatasetRun) -> dict[str, Any]:
    return json.loads(run.report.read_text())


def run_chain(beta: float, n: int, lattice: Lattice = Lattice((2, 3, 2, 3), 3)) -> list[np.ndarray]:  # noqa: B008
    """Return configurations of the Wilson action."""
    sweeps = Sweeps(GaugeAction(ActionOptions(beta=beta), lattice), 0)
    links = draw_hot(lattice, 1, torch.Generator().manual_seed(0))[0].numpy()
    configurations = []
    for i in range(20 + n):
        sweeps.update_heatbath(links)
        sweeps.update_overrelaxed(links)
        if i >= 20:
            configurations.append(links.copy())
    return configurations


def write_files(folder: Path, beta: float, n: int = 20, action: ActionOptions | None = None):
    """Write every second configuration as ILDG, the others as NERSC."""
    folder.mkdir(parents=True)
    for i, links in enumerate(run_chain(beta, n)):
        configuration = Configuration(Lattice((2, 3, 2, 3), 3), links, action)
        if i % 2:
            write_nersc(folder / f"{i:03d}.nersc", configuration)
        else:
            write_ildg(folder / f"{i:03d}.ildg", configuration)
