"""Surfaces that are known in closed form: sums of functions of one coordinate each.

Each node passes on the function 1 and the sum of the functions below it, so ranks of 2 hold any
such sum exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from pipeline_core.task import build_task
from pipeline_core.training.model_file import write_model
from pipeline_htfbr.data.hono import HONO
from pipeline_htfbr.data.molecule import NormalModes
from pipeline_htfbr.data.points import Points
from pipeline_htfbr.graph.basis import Leaf
from pipeline_htfbr.graph.dimension_tree import build_balanced, make_nodes
from pipeline_htfbr.model import Surface
from pipeline_kernels.tree import TreeShape

INVERSE_CM = 1.239841984e-4
TRANS = np.array([2.696732586, 1.822912197, 2.213326419, np.cos(1.777642018), np.cos(1.9315017)])
TRANS = np.append(TRANS, np.pi)
"""Minimum of HONO in its published surface."""


def build_additive(
    leaves: Sequence[Leaf], functions: Sequence[Callable], shift: float = 0.0
) -> Surface:
    """Return shift + sum of functions (eV) that the leaves' functions represent."""
    shape = TreeShape(
        (2,) * len(leaves), make_nodes(build_balanced(range(len(leaves))), _list_ranks(leaves))
    )
    module = Surface(leaves, shape, gradients=False).double()
    assign(module, functions, shift)
    return module


def assign(module: Surface, functions: Sequence[Callable], shift: float = 0.0) -> None:
    """Give a surface of rank 2 everywhere the weights of a sum of functions."""
    scale = 1.7  # any will do
    with torch.no_grad():
        module.shift.fill_(shift)
        module.scale.fill_(scale)
        for leaf, matrix, function in zip(module.leaves, module.maps, functions, strict=True):
            matrix.zero_()
            matrix[0, 0] = 1
            matrix[:, 1] = torch.from_numpy(fit_coefficients(leaf, function) / scale)
        for B in module.shape.split_transfers(module.transfers):
            B.zero_()
            B[0, 0, 0] = 1
            B[0, 1, -1] = B[1, 0, -1] = 1
        B[0, 0, 0] = 0  # the root has only the sum


def fit_coefficients(leaf: Leaf, function: Callable) -> np.ndarray:
    """Fit the functions of a leaf by least squares at many points."""
    x = (leaf.lower + leaf.upper) / 2 + (leaf.upper - leaf.lower) / 2 * np.cos(
        np.pi * (np.arange(200) + 0.5) / 200
    )
    table = leaf.functions(torch.from_numpy(x)).numpy()
    return np.linalg.lstsq(table.T, function(x), rcond=None)[0]


def make_hono_leaves(degree: int = 12, torsion: int = 6) -> list[Leaf]:
    return [
        Leaf(
            family="cosine" if c.period else "chebyshev",
            degree=torsion if c.period else degree,
            lower=c.lower,
            upper=c.upper,
            period=c.period,
        )
        for c in HONO().coordinates
    ]


def build_hono_cuts() -> list[Callable]:
    """Energies of HONO along each coordinate from the trans minimum, above it."""
    surface = HONO()
    lowest = surface.energies(TRANS[None])[0]

    def along(mu):
        def function(x):
            places = np.tile(TRANS, (len(x), 1))
            places[:, mu] = x
            return surface.energies(places) - lowest

        return function

    return [along(mu) for mu in range(6)]


def build_hono_surface() -> Surface:
    """Return the sum of all cuts of HONO through its trans minimum."""
    return build_additive(
        make_hono_leaves(), build_hono_cuts(), float(HONO().energies(TRANS[None])[0])
    )


def draw_hono_points(n: int = 200) -> Points:
    surface = HONO()
    lower, upper = np.array([(c.lower, c.upper) for c in surface.coordinates]).T
    x = np.random.default_rng(0).uniform(lower, upper, (n, 6))
    return Points(
        coordinates=surface.coordinates,
        x=x,
        energy=surface.energies(x),
        gradient=None,
        group=np.array(["hono"] * n, dtype=object),
        split=(np.arange(n) * 5 // n).clip(2, 4).astype(np.int8) - 2,
        surface="hono",
        molecule=surface.molecule,
    )


def make_hono_sections(**infer) -> dict:
    """Return the sections of an experiment whose model `write_hono` can write."""
    return {
        "model": {"rank": 2, "leaf_rank": 2},
        "graph": {"basis": ["chebyshev"] * 5 + ["cosine"], "degree": [12] * 5 + [6]},
        "train": {"method": "resident"},
        "infer": infer,
    }


def write_hono(run) -> Surface:
    """Write the sum of cuts as the model of a run; return it."""
    task = build_task(run)
    task.module.double()
    assign(task.module, build_hono_cuts(), float(HONO().energies(TRANS[None])[0]))
    task = replace(task, metadata=dict(task.metadata))
    write_model(run, task, task.module.state_dict(), ("test", np.arange(3)), {})
    return task.module


def draw_modes(reference, masses, count, seed=0):
    """Return random modes of a molecule that neither shift nor turn it, weighted by its masses."""
    root = np.sqrt(np.repeat(masses, 3))
    centred = reference - np.average(reference, axis=0, weights=masses)
    rigid = [np.tile(axis, (len(masses), 1)) for axis in np.eye(3)]
    rigid += [np.cross(axis, centred) for axis in np.eye(3)]
    rigid = np.linalg.qr(np.array([one.ravel() * root for one in rigid]).T)[0]
    draws = np.random.default_rng(seed).normal(size=(len(root), count))
    modes = np.linalg.qr(draws - rigid @ (rigid.T @ draws))[0].T
    displacements = (0.1 * modes / root).reshape(count, -1, 3)
    return NormalModes(displacements, (1000.0,) * count)


def _list_ranks(leaves: Sequence[Leaf]) -> list[int]:
    return [2] * (len(leaves) - 2) + [1]
