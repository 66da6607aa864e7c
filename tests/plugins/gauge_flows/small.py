"""Small flows and runs of them, and Jacobians by finite differences."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.testing import assert_close

from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import call
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, make_neighbours
from pipeline_gauge_flows.data.loops import project_to_algebra
from pipeline_gauge_flows.graph.layout import FlowLayout
from pipeline_gauge_flows.graph.masks import list_updates
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.model.network import build_flow
from pipeline_gauge_flows.options import ResidualOptions, SpectralOptions, StapleOptions
from pipeline_kernels.su3 import draw_haar
from pipeline_kernels.su3.residual.reference import compute_components, make_basis

STAPLES = StapleOptions(width=2, n_layers=3)
LAYERS = {
    "plaquette": SpectralOptions(bins=4, hidden=[8]),
    "learned": SpectralOptions(
        bins=4, hidden=[8], loops="learned", staples=STAPLES,
        learned_with=["direction", "location", "m4"],
    ),
    "residual": ResidualOptions(hidden=[8], rectangles=True),
}  # fmt: skip
"""All types of layers."""


class OwnDensity:
    """The action S = -log q of a flow of the Haar measure: its target is reached exactly."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def __call__(self, links: torch.Tensor) -> torch.Tensor:
        return -self.flow.inverse(links)[1]


def make_flow(
    layers: str, lattice: Lattice, blocks: list[tuple[str, int]], memory: str = "graph", seed=0
) -> Flow:
    """Return a flow in double precision with random weights, which does something."""
    generator = torch.Generator().manual_seed(seed)
    updates = list_updates(blocks, lattice.dimension)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        flow = build_flow(LAYERS[layers], FlowLayout(lattice, tuple(updates)), memory).double()
    size = 0.5 if layers == "residual" else 0.1
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(torch.randn(p.shape, generator=generator, dtype=p.dtype), alpha=size)
    return flow


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw_links(lattice: Lattice, n: int = 2, seed: int = 1) -> torch.Tensor:
    return draw_hot(lattice, n, make_generator(seed))


def draw_gauge(lattice: Lattice, n: int = 2, seed: int = 2) -> torch.Tensor:
    matrices = draw_haar(n * lattice.volume, lattice.n_colours, make_generator(seed))
    return matrices.reshape(n, lattice.volume, *matrices.shape[1:])


def draw_direction(links: torch.Tensor, seed: int = 1) -> torch.Tensor:
    """Return an element of the algebra for each link."""
    gauss = torch.randn(links.shape, generator=make_generator(seed), dtype=links.dtype)
    return project_to_algebra(gauss)


def measure_slope(function, links: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """Return the derivative of a function of links along exp(t X) U, by seven points: O(h^6)."""
    h = 1e-3
    ends = [function(torch.linalg.matrix_exp(k * h * X) @ links) for k in (1, -1, 2, -2, 3, -3)]
    one, two, three = (ends[i] - ends[i + 1] for i in (0, 2, 4))
    return (45 * one - 9 * two + three) / (60 * h)


def check_force(action, links: torch.Tensor) -> None:
    """Check that the force is in the algebra, and the slope of the action by differences."""
    X, force = draw_direction(links), action.force(links)
    expected = 2 * (X @ force).diagonal(dim1=-2, dim2=-1).sum((1, 2, 3)).real
    assert_close(measure_slope(action, links, X), expected, rtol=1e-8, atol=1e-8)
    assert_close(project_to_algebra(force), force)


def multiply_plaquettes(links: torch.Tensor, lattice: Lattice) -> torch.Tensor:
    """Return U_mu(x) U_nu(x+mu) U_mu(x+nu)^dag U_nu(x)^dag, (batch, planes, V, N, N).

    Args:
        links: (batch, D, V, N, N).
        lattice: Their lattice.
    """
    forward, _ = make_neighbours(lattice, links.device)
    loops = []
    for mu, nu in lattice.planes:
        there = links[:, mu] @ links[:, nu, forward[mu]]  # (batch, V, N, N)
        back = links[:, nu] @ links[:, mu, forward[nu]]
        loops.append(there @ back.mH)
    return torch.stack(loops, dim=1)


def transform_gauge(
    links: torch.Tensor, transformation: torch.Tensor, lattice: Lattice
) -> torch.Tensor:
    """Return O(x) U_mu(x) O(x+mu)^dag.

    Args:
        links: (batch, D, V, N, N).
        transformation: O, (V, N, N) or (batch, V, N, N).
        lattice: Their lattice.
    """
    forward, _ = make_neighbours(lattice, links.device)
    ends = transformation[..., forward, :, :]  # (..., D, V, N, N)
    return transformation.unsqueeze(-4) @ links @ ends.mH


def jacobian(map_links, links: torch.Tensor, step: float = 1e-5) -> torch.Tensor:
    """Return the dense Jacobian of a map of one configuration, by differences of fourth order.

    Splines have kinks in their second derivative, so that a step must not reach across one.

    Rows and columns are (link, generator): the output turns by the row's as the input is turned by
    the column's, U -> exp(t T) U.
    """
    _, n_directions, volume, n_colours, _ = links.shape
    n_links, generators = n_directions * volume, make_basis(n_colours, links.device)
    n = n_links * len(generators)
    flat, there = links.flatten(1, 2), map_links(links)
    columns = torch.zeros(n, n, dtype=torch.float64)
    for shift, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
        turned = torch.linalg.matrix_exp(step * shift * generators)
        moved = flat.repeat(n, 1, 1, 1)
        for link in range(n_links):
            rows = slice(link * len(generators), (link + 1) * len(generators))
            moved[rows, link] = turned @ flat[0, link]
        image = map_links(moved.view(n, *links.shape[1:]))
        turn = (image @ there.mH).flatten(1, 2)  # close to 1
        columns += weight * compute_components(turn).flatten(1)
    return columns.T / (12 * step)


def make_run(folder: Path, dataset: dict[str, Any] | None = None, **sections: Any) -> Run:
    """Write an experiment into a folder and do its stages before the training.

    Args:
        folder: Where to.
        dataset: Content of a dataset file, whose data are made.
        **sections: Of the experiment.
    """
    content = {"description": "A flow.", "plugin": "gauge_flows", **sections}
    if dataset is not None:
        write_dataset(folder, "ensemble", dataset)
        content["dataset"] = "ensemble"
    path = folder / "workflows/experiments/flow.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    run = load_run(folder)
    for stage in ("graph", "partition") if dataset is None else ("data", "graph", "partition"):
        call(run, stage)
    return run


def write_dataset(folder: Path, name: str, content: dict[str, Any]) -> Path:
    """Write a dataset file."""
    path = folder / f"workflows/datasets/{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {"plugin": "gauge_flows", "description": "A theory.", **content}
    path.write_text(yaml.safe_dump(text))
    return path


def load_project(folder: Path) -> Project:
    """Return the project in a folder."""
    points = [EntryPoint("gauge_flows", "pipeline_gauge_flows.plugin", "pipeline_core")]
    return Project(folder / "workflows", folder / "results", load_registry(points))


def load_run(folder: Path) -> Run:
    """Return the run in a folder."""
    return replace(load_project(folder).run("flow"), device="cpu")
