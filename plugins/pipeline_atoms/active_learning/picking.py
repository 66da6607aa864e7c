"""Selection rule of active learning: the structures of an exploration that are to be labelled.

Structures are ranked by the disagreement of the models of a committee, measured by the largest
deviation of the force on an atom (Y. Zhang et al., Comput. Phys. Commun. 253, 107206 (2020),
equation (3)). Structures close to those already picked or labelled are skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CLOSEST: Final = 1e-3
"""Distance below which two structures are the same, Å, whatever distance is requested."""


@dataclass(frozen=True)
class Candidate:
    """A structure of an exploration.

    Attributes:
        atoms: The structure.
        simulation: Name of the dynamics that it comes from.
        time: Time of the frame in the dynamics, fs.
        spread: Spread of the committee, eV/Å; 0 if one model explores.
    """

    atoms: Atoms
    simulation: str
    time: float
    spread: float


def measure_spread(deviations: Floats) -> float:
    """Return the largest disagreement of the models on the force on an atom, eV/Å.

    Args:
        deviations: Standard deviation of each force component over models, eV/Å, (n_atoms, 3).
    """
    return float(np.linalg.norm(deviations, axis=1).max())


def measure_distance(one: Atoms, other: Atoms) -> float:
    """Return the distance of two structures, Å; infinity if their elements differ.

    It is the root mean square displacement of the atoms, each to its nearest image, without the
    common displacement; if cells differ, plus the mean displacement of a point by the strain.
    """
    if not np.array_equal(one.numbers, other.numbers) or (one.pbc != other.pbc).any():
        return np.inf
    mean = (one.cell[:] + other.cell[:]) / 2
    if one.pbc.all():
        steps = one.get_scaled_positions(wrap=False) - other.get_scaled_positions(wrap=False)
        steps -= np.round(steps)
        displacements = (steps - steps.mean(axis=0)) @ mean
    else:
        displacements = one.positions - other.positions
        displacements -= displacements.mean(axis=0)
    strain = float(((one.cell[:] - other.cell[:]) ** 2).sum()) / 12
    return float(np.sqrt((displacements**2).sum(axis=1).mean() + strain))


def pick_by_spread(
    candidates: Sequence[Candidate], labelled: Sequence[Atoms], count: int, distance: float
) -> tuple[list[Candidate], float]:
    """Pick the structures on which the models differ most.

    Args:
        candidates: Structures to choose from.
        labelled: Structures that have a label already.
        count: Number of structures to pick.
        distance: Smallest distance between two picks, or a pick and a labelled structure, Å.

    Returns:
        The picks, largest spread first, and the smallest distance between them: it is halved until
        there are enough.

    Raises:
        ValueError: There are not enough structures that differ.
    """
    ordered = sorted(candidates, key=lambda one: -one.spread)
    while distance >= _CLOSEST:
        picks: list[Candidate] = []
        for one in ordered:
            others = [*labelled, *(pick.atoms for pick in picks)]
            if all(measure_distance(one.atoms, other) >= distance for other in others):
                picks.append(one)
            if len(picks) == count:
                return picks, distance
        distance /= 2
    raise ValueError(
        f"learn: {len(candidates)} structures do not hold {count} different ones to label; "
        "lengthen learn.md, raise its temperature, or lower learn.per_round"
    )


def pick_at_random(candidates: Sequence[Candidate], count: int, seed: int) -> list[Candidate]:
    """Pick structures at random, without replacement.

    Raises:
        ValueError: There are not enough of them.
    """
    if len(candidates) < count:
        raise ValueError(
            f"learn: {len(candidates)} structures are fewer than the {count} to label; lengthen "
            "learn.md, or lower learn.per_round"
        )
    chosen = np.random.default_rng(seed).choice(len(candidates), count, replace=False)
    return [candidates[i] for i in chosen]
