"""Copies of periodic cells: larger samples whose labels follow exactly from those of the cell.

A cell that is repeated n = n₁n₂n₃ times along its periodic vectors describes the same crystal, so

    E' = n E,    F'_ik = F_i for each copy k of atom i,    σ' = σ,

and magnetic moments are repeated like the forces, which makes a ferromagnet of a ferromagnet and an
antiferromagnet of an antiferromagnet.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.config.datasets import Source
from pipeline_core.fields import FIELDS

Sample = dict[str, NDArray[Any]]
Copies = tuple[int, int, int]
Floats = NDArray[np.float64]

_EXTENSIVE: Final = ("energy",)
_LONGEST: Final = 2.0  # edge over the shortest one


def count_copies(source: Source, sample: Mapping[str, NDArray[Any]]) -> Copies:
    """Return how often a source repeats a sample along each of its vectors.

    Raises:
        ValueError: A direction that is to be repeated is not periodic.
    """
    pbc = sample["pbc"]
    if source.repeat is not None:
        wrong = [i for i in range(3) if source.repeat[i] > 1 and not pbc[i]]
        if wrong:
            raise ValueError(
                f"repeat: {list(source.repeat)} repeats the lattice vector {wrong[0]}, along which "
                "the frame is not periodic; give 1 for it, or make a source of such frames"
            )
        return source.repeat
    if source.repeat_to is None:
        return 1, 1, 1
    most = source.repeat_to // len(sample["atomic_numbers"])
    if most < 2 or not pbc.any():
        return 1, 1, 1
    return _choose_roundest(np.linalg.norm(sample["cell"], axis=1), pbc, most)


def _choose_roundest(lengths: Floats, pbc: NDArray[np.bool_], most: int) -> Copies:
    """Return the most copies that do not make the cell needle-shaped, of equal ones the roundest.

    Args:
        lengths: Lengths of the lattice vectors, (3,).
        pbc: Which of them may be repeated, (3,).
        most: Largest number of copies.
    """
    choices = _list_choices(most, *pbc.tolist())  # (n_choices, 3)
    edges = (choices * lengths)[:, pbc]
    elongation = edges.max(axis=1) / edges.min(axis=1)
    now = lengths[pbc].max() / lengths[pbc].min()
    # Rounding: a cell whose edges are equal but for the last bit has more than one best choice.
    elongation = np.round(elongation, 9)
    allowed = elongation <= max(_LONGEST, round(float(now), 9))
    order = np.lexsort([elongation, -choices.prod(axis=1), ~allowed])
    first, second, third = choices[order[0]].tolist()
    return first, second, third


@lru_cache(maxsize=256)
def _list_choices(most: int, first: bool, second: bool, third: bool) -> NDArray[np.int64]:
    """Return all numbers of copies along three vectors whose product is `most` or less."""
    choices = [
        (a, b, c)
        for a in range(1, (most if first else 1) + 1)
        for b in range(1, (most // a if second else 1) + 1)
        for c in range(1, (most // (a * b) if third else 1) + 1)
    ]
    return np.array(choices)


def tile_sample(sample: Sample, numbers: Copies) -> Sample:
    """Return a sample that consists of copies of another; atoms of one copy stay together.

    Args:
        sample: Structure and labels, in the engine's units.
        numbers: Copies along each lattice vector.
    """
    if numbers == (1, 1, 1):
        return sample
    n = int(np.prod(numbers))
    shifts = np.indices(numbers).reshape(3, n).T @ sample["cell"]  # (n, 3)
    tiled = {}
    for name, rows in sample.items():
        if FIELDS[name].kind == "atom":
            tiled[name] = np.tile(rows, (n,) + (1,) * (rows.ndim - 1))
        else:
            tiled[name] = rows * n if name in _EXTENSIVE else rows
    tiled["positions"] = (shifts[:, None] + sample["positions"]).reshape(-1, 3)
    tiled["cell"] = sample["cell"] * np.array(numbers)[:, None]
    return tiled
