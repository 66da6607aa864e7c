"""Copies of periodic cells: larger samples with labels that follow exactly from the cell.

A cell repeated n = n₁n₂n₃ times along its periodic vectors describes the same crystal, so

    E' = n E,    F'_ik = F_i for each copy k of atom i,    σ' = σ,

and magnetic moments are repeated like the forces, so that the magnetic order is kept.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.config.datasets import Source
from pipeline_atoms.config.limits import ATOM_BYTES
from pipeline_core.fields import FIELDS
from pipeline_core.system.memory import require_free

Sample = dict[str, NDArray[Any]]
Copies = tuple[int, int, int]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_EXTENSIVE: Final = ("energy",)
_LONGEST: Final = 2.0  # edge over the shortest one


def count_copies(source: Source, sample: Mapping[str, NDArray[Any]]) -> Copies:
    """Return the number of copies of a sample along each of its vectors.

    Raises:
        ValueError: A direction to repeat is not periodic, or there is no memory for the copies.
    """
    copies = _choose_copies(source, sample)
    n_atoms = len(sample["atomic_numbers"]) * math.prod(copies)
    what = f"{n_atoms} atoms, which {math.prod(copies)} copies have,"
    require_free(float(n_atoms) * ATOM_BYTES, what, "lower repeat or repeat_to")
    return copies


def _choose_copies(source: Source, sample: Mapping[str, NDArray[Any]]) -> Copies:
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
        pbc: True for vectors that may be repeated, (3,).
        most: Largest number of copies.
    """
    now = lengths[pbc].max() / lengths[pbc].min()
    longest = max(_LONGEST, round(float(now), 9))
    choices = _list_choices(lengths[pbc], most, longest)  # (n_choices, n_periodic)
    edges = choices * lengths[pbc]
    # Rounding: if edges differ only in the last bit, several choices are equally good.
    elongation = np.round(edges.max(axis=1) / edges.min(axis=1), 9)
    order = np.lexsort([elongation, -choices.prod(axis=1), elongation > longest])
    copies = np.ones(3, np.int64)
    copies[pbc] = choices[order[0]]
    first, second, third = copies.tolist()
    return first, second, third


def _list_choices(lengths: Floats, most: int, longest: float) -> Ints:
    """Return numbers of copies with a product of at most `most`, including the best choices.

    Along the last vector only the largest number is listed that leaves no edge longer than
    `longest` times another, as more copies are always better.

    Args:
        lengths: Lengths of the vectors to repeat, (n,).
        most: Largest number of copies.
        longest: Edge over the shortest one.
    """
    rows: list[tuple[int, ...]] = [()]
    if len(lengths) > 1:  # other edges are at least this one over `longest`
        n = (most * np.prod(longest * lengths[1:] / lengths[0])) ** (1 / len(lengths))
        rows = [(i,) for i in range(1, min(most, int(n) + 1) + 1)]
    if len(lengths) > 2:
        ratio = lengths[0] / lengths[1]
        rows = [
            (i, j)
            for (i,) in rows
            for j in range(
                max(1, int(i * ratio / longest)), min(most // i, int(i * ratio * longest) + 1) + 1
            )
        ]
    leading = np.array(rows, dtype=np.int64).reshape(len(rows), -1)
    shortest = (leading * lengths[:-1]).min(axis=1, initial=np.inf)
    room = most // leading.prod(axis=1)
    last = np.minimum(room, longest * shortest / lengths[-1] + 1).astype(np.int64)
    choices = [np.column_stack([leading, np.maximum(last - less, 1)]) for less in range(3)]
    return np.unique(np.concatenate(choices), axis=0)


def tile_sample(sample: Sample, numbers: Copies) -> Sample:
    """Return a sample of copies of another sample; atoms of one copy stay together.

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
