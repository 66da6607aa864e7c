"""Source `ethene_xtb`: classical trajectories of ethene in its normal modes.

A trajectory starts from the Wigner distribution of the harmonic ground state, q and p normal with
variance 1/2 each; every second one gets up to 60 % more momentum. It follows q' = ω p/ħ,
p' = -(∂V/∂q)/ħ by the velocity Verlet method.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import count
from math import ceil
from multiprocessing import get_context
from typing import Final, Literal

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from pipeline_core.units import HARTREE, HBAR, find_factor
from pipeline_htfbr.data.datasets import EtheneSource
from pipeline_htfbr.data.ethene import N_MODES, Ethene, find_ethene, make_gfn2, require_tblite
from pipeline_htfbr.data.made import Made
from pipeline_htfbr.data.points import Points

Floats = NDArray[np.float64]
End = Literal["steps", "energy", "charges"]

_MORE_MOMENTUM: Final = 0.6
_HIGHEST: Final = 0.25 * HARTREE
"""Energy above which a trajectory ends, eV"""


@dataclass(frozen=True)
class Trajectory:
    """Points along one trajectory.

    Attributes:
        q: (n, 12)
        energy: (n,) eV.
        gradient: (n, 12) eV.
        end: Reason of the end: all steps done, too high an energy, or charges do not converge.
    """

    q: Floats
    energy: Floats
    gradient: Floats
    end: End


def follow_trajectories(source: EtheneSource) -> Made:
    """Run as many trajectories as the points require.

    Raises:
        ValueError: tblite is not installed, or the trajectories have no points.
    """
    require_tblite()
    with _make_pool(source.processes) as pool:
        # Not in this process, whose threads would sum the energies in another order.
        surface = pool.submit(find_ethene).result()
        trajectories = list(_iterate_trajectories(pool, surface, source))
    ends = [one.end for one in trajectories]
    if "steps" not in ends:
        raise ValueError(
            f"source: none of {len(trajectories)} trajectories of ethene was completed; lower "
            "source.timestep or source.steps"
        )
    x, energy, gradient = (
        np.concatenate([getattr(one, name) for one in trajectories])[: source.points]
        for name in ("q", "energy", "gradient")
    )
    names = [
        f"trajectory-{number:04d}" for number, one in enumerate(trajectories) for _ in one.energy
    ]
    facts = {
        "reader": source.reader,
        "trajectories": len(trajectories),
        "ended_by": {end: ends.count(end) for end in ("steps", "energy", "charges")},
        "frequencies_cm-1": (surface.frequencies / find_factor("energy", "cm^-1")).tolist(),
        "minimum_hartree": surface.lowest,
    }
    points = Points(
        coordinates=surface.coordinates,
        x=x,
        energy=energy,
        gradient=gradient if source.gradients else None,
        group=np.array(names[: source.points], dtype=object),
        split=np.full(len(x), -1, dtype=np.int8),
        surface="ethene_xtb",
        molecule=surface.molecule,
    )
    return Made(points=points, facts=facts, versions={"tblite": version("tblite")})


def _make_pool(processes: int | None) -> ProcessPoolExecutor:
    n_processes = processes or len(os.sched_getaffinity(0))
    return ProcessPoolExecutor(n_processes, get_context("spawn"), _limit_threads)


def _limit_threads() -> None:
    """Limit tblite, which reads the variable when it is first imported, to one thread."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"


def _iterate_trajectories(
    pool: ProcessPoolExecutor, surface: Ethene, source: EtheneSource
) -> Iterator[Trajectory]:
    """Yield trajectories in the order of their seeds until there are enough points."""
    root, numbers, n_points = SeedSequence(source.seed), count(), 0
    n_each = ceil(source.steps / source.stride)
    while n_points < source.points:
        before = n_points
        seeds = root.spawn(ceil((source.points - n_points) / n_each))
        for trajectory in pool.map(partial(follow, surface, source), numbers, seeds):
            if n_points < source.points:
                n_points += len(trajectory.energy)
                yield trajectory
        if n_points == before:
            raise ValueError(
                f"source: {len(seeds)} trajectories of ethene gave no point; lower source.timestep"
            )


def follow(surface: Ethene, source: EtheneSource, number: int, seed: SeedSequence) -> Trajectory:
    """Run one trajectory, independent of earlier calculations.

    Args:
        surface: The surface.
        source: Steps, time step and stride.
        number: Number of the trajectory; odd ones get more momentum.
        seed: Seed of the initial conditions.
    """
    rng = np.random.default_rng(seed)
    q, p = rng.normal(scale=np.sqrt(0.5), size=(2, N_MODES))
    if number % 2:
        p *= 1 + _MORE_MOMENTUM * rng.random()
    calculator = make_gfn2()
    calculator.forget()
    step = source.timestep / HBAR  # 1/eV
    kept: list[tuple[Floats, float, Floats]] = []
    end: End = "steps"
    try:
        energy, slope = surface.evaluate(q, calculator)
        for i in range(source.steps):
            if not energy <= _HIGHEST:
                end = "energy"
                break
            if i % source.stride == 0:
                kept.append((q, energy, slope))
            p = p - step / 2 * slope
            q = q + step * surface.frequencies * p
            energy, slope = surface.evaluate(q, calculator)
            p = p - step / 2 * slope
    except RuntimeError:
        end = "charges"
    return Trajectory(
        q=np.array([one[0] for one in kept]).reshape(-1, N_MODES),
        energy=np.array([one[1] for one in kept]),
        gradient=np.array([one[2] for one in kept]).reshape(-1, N_MODES),
        end=end,
    )
