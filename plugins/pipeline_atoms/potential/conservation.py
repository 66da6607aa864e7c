"""Deviation of forces from the gradient of an energy (non-conservative forces).

The matrix J = dF/dx of forces F is symmetric if and only if they are the gradient of some energy,
which need not be the predicted E. Two numbers measure the deviation:

    curl     = |J - Jᵀ| / |J + Jᵀ|      0 for any gradient, about 1 for forces at random
    mismatch = |F + dE/dx| / |F|        0 for the gradient of the predicted energy

Norms are Frobenius norms, estimated from random directions v_k: with independent normal components,
(v_k · M v_l)² has the mean |M|², and (v_k · f)² the mean |f|².
"""

from copy import deepcopy
from itertools import combinations
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from pipeline_atoms.potential.potential import Potential
from pipeline_core.batch import Batch, count_samples, move_to_device
from pipeline_core.task import Outputs, Samples, Task
from pipeline_core.training.out_of_memory import report_out_of_memory

_DOUBLE: Final = (
    "where forces of a few samples are compared with a gradient, in double precision; call with "
    "--device cpu"
)
_SAMPLES: Final = 4
_DIRECTIONS: Final = 6
_STEP: Final = 1e-3
"""Step of central differences along a direction, Å."""


def report_conservation(task: Task, samples: Samples) -> dict[str, Any]:
    """Return further metrics of a split: curl and mismatch; empty if forces are derivatives.

    Args:
        task: The task; its module is on the device of the calculation.
        samples: Samples of the split; the first few are used.
    """
    module, count = task.module, min(_SAMPLES, len(samples))
    if not isinstance(module, Potential) or "forces" not in module.direct or not count:
        return {}
    with report_out_of_memory(lambda: _DOUBLE):
        batch = move_to_device(samples.batch(range(count)), next(module.parameters()).device)
        return {"conservation": measure_conservation(module, batch)}


def measure_conservation(module: nn.Module, batch: Batch, seed: int = 0) -> dict[str, float]:
    """Measure curl and mismatch of predicted forces, in double precision.

    Args:
        module: Model of energy and forces; it is not changed.
        batch: Structures with their graphs, which are kept while atoms move by 0.001 Å; pooled.
        seed: Seed of the random directions.

    Returns:
        `curl` and `mismatch`.
    """
    exact = deepcopy(module).double().eval()
    batch = {name: x.double() if x.is_floating_point() else x for name, x in batch.items()}
    forces = _predict(exact, batch, torch.zeros_like(batch["positions"]))["forces"]
    directions = _draw_directions(batch, seed)
    slopes, rows = [], []  # of the energy; v_k · J v_l
    for direction in directions:
        plus, minus = (_predict(exact, batch, sign * _STEP * direction) for sign in (1, -1))
        slopes.append((plus["energy"] - minus["energy"]) / (2 * _STEP))
        change = (plus["forces"] - minus["forces"]) / (2 * _STEP)
        rows.append([_multiply(batch, other, change) for other in directions])
    pairs = list(combinations(range(len(directions)), 2))
    projections = [_multiply(batch, direction, forces) for direction in directions]
    return {
        "curl": _divide_norms(
            [rows[k][n] - rows[n][k] for k, n in pairs], [rows[k][n] + rows[n][k] for k, n in pairs]
        ),
        "mismatch": _divide_norms(
            [f + slope for f, slope in zip(projections, slopes, strict=True)], projections
        ),
    }


def _draw_directions(batch: Batch, seed: int) -> list[Tensor]:
    positions = batch["positions"]
    draws = np.random.default_rng(seed).normal(size=(_DIRECTIONS, *positions.shape))
    return list(torch.from_numpy(draws).to(positions.device))


def _predict(module: nn.Module, batch: Batch, shift: Tensor) -> Outputs:
    with torch.no_grad():
        outputs: Outputs = module(batch | {"positions": batch["positions"] + shift})
    return outputs


def _multiply(batch: Batch, one: Tensor, other: Tensor) -> Tensor:
    """Compute the scalar product in each structure, (n_samples,)."""
    products = (one * other).sum(1)
    return products.new_zeros(count_samples(batch)).index_add(0, batch["atom_sample"], products)


def _divide_norms(numerator: list[Tensor], denominator: list[Tensor]) -> float:
    norms = [float(torch.stack(parts).square().sum().sqrt()) for parts in (numerator, denominator)]
    return norms[0] / norms[1] if norms[1] else 0.0
