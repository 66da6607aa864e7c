"""Which of how many ranks is this process? Found from its environment, without torch or MPI.

An environment names its launcher: torchrun (and Kubernetes operators) set RANK and WORLD_SIZE; srun
sets SLURM_PROCID and SLURM_STEP_NUM_TASKS; mpiexec sets PMI_* (MPICH, Intel) or OMPI_COMM_WORLD_*
(Open MPI). An sbatch script outside srun also has SLURM_PROCID and SLURM_NTASKS, but no step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

_TORCHRUN: Final = ("RANK", "WORLD_SIZE")
_RENDEZVOUS: Final = ("MASTER_ADDR", "MASTER_PORT")
_SRUN: Final = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
_MPIEXEC: Final = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


@dataclass(frozen=True)
class World:
    """The place of this process among its peers.

    Attributes:
        launcher: What started the ranks; "none" for a process on its own.
        rank: Number of this process, from 0; rank 0 alone writes files.
        size: Number of processes.
    """

    launcher: Literal["none", "torchrun", "srun", "mpiexec"] = "none"
    rank: int = 0
    size: int = 1


def find_world(environment: Mapping[str, str] = os.environ) -> World:
    """Return the place of this process.

    srun and mpiexec can be nested in each other: mpiexec starts its helpers through srun, and srun
    offers PMI variables to MPI programs. Where both speak, srun is believed only if the two agree.
    """
    if all(name in environment for name in (*_TORCHRUN, *_RENDEZVOUS)):
        return _make_world("torchrun", _read_numbers(environment, _TORCHRUN))
    srun = _read_numbers(environment, _SRUN)
    mpiexec = next((n for names in _MPIEXEC if (n := _read_numbers(environment, names))), None)
    if mpiexec and mpiexec != srun:
        return _make_world("mpiexec", mpiexec)
    return _make_world("srun", srun)


def _read_numbers(environment: Mapping[str, str], names: tuple[str, str]) -> tuple[int, int] | None:
    rank, size = (environment.get(name) for name in names)
    return (int(rank), int(size)) if rank and size else None


def _make_world(
    launcher: Literal["torchrun", "srun", "mpiexec"], numbers: tuple[int, int] | None
) -> World:
    return World(launcher, *numbers) if numbers and numbers[1] > 1 else World()
