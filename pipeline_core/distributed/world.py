"""World size and rank of this process, from its environment, without torch or MPI.

An environment names its launcher: torchrun (and Kubernetes operators) set RANK and WORLD_SIZE; srun
sets SLURM_PROCID and SLURM_STEP_NUM_TASKS; mpiexec sets PMI_RANK (MPICH, Intel) or
OMPI_COMM_WORLD_RANK (Open MPI). An sbatch script outside srun also has SLURM_PROCID and
SLURM_NTASKS, but no step.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

_TORCHRUN: Final = ("RANK", "WORLD_SIZE")
_RENDEZVOUS: Final = ("MASTER_ADDR", "MASTER_PORT")
_SRUN: Final = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
_STEP: Final = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_MPIEXEC: Final = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
_FIRST_PID_NAMESPACE: Final = 0xEFFFFFFC  # PROC_PID_INIT_INO of Linux


@dataclass(frozen=True)
class World:
    """Rank of this process and size of its world.

    Attributes:
        launcher: Program that started the ranks; "none" for a single process.
        rank: Number of this process, from 0; only rank 0 writes files.
        size: Number of processes.
    """

    launcher: Literal["none", "torchrun", "srun", "mpiexec"] = "none"
    rank: int = 0
    size: int = 1


def find_world(environment: Mapping[str, str] = os.environ) -> World:
    """Return rank and world size of this process.

    srun and mpiexec can be nested in each other: mpiexec starts its helpers through srun, and srun
    sets PMI variables for MPI programs. If both are set, srun counts only if the two agree.
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


def describe_claim(world: World, environment: Mapping[str, str] = os.environ) -> str:
    """Return the launcher's variables of this process, and how to remove leftovers."""
    names = {"torchrun": [_TORCHRUN], "srun": [_SRUN]}.get(world.launcher, list(_MPIEXEC))
    numbers = (str(world.rank), str(world.size))
    rank, size = next(n for n in names if tuple(map(environment.get, n)) == numbers)
    return (
        f"{rank}={world.rank} and {size}={world.size} mean that {world.launcher} has started this "
        f"process and others; if they are left over, unset them: unset {rank} {size}"
    )


def refuse_leftovers(world: World, environment: Mapping[str, str] = os.environ) -> None:
    """Check that variables of a launcher are complete.

    Raises:
        ValueError: They are left over in a saved or exported environment.
    """
    missing = [name for name in _STEP if name not in environment]
    if world.launcher == "srun" and missing:
        raise ValueError(
            f"{describe_claim(world, environment)} (srun would have set {missing[0]}, too)"
        )


def may_be_launched(world: World) -> bool:
    """Return False if the launcher has certainly not started this process.

    Each task of srun descends from Slurm's stepd, which is visible unless the process is in a
    container with separate processes.
    """
    if world.launcher != "srun":
        return True
    try:
        namespace = Path("/proc/self/ns/pid").readlink()
        return (
            namespace.name != f"pid:[{_FIRST_PID_NAMESPACE}]" or "slurmstepd" in _list_ancestors()
        )
    except OSError:
        return True


def _list_ancestors() -> Iterator[str]:
    pid = os.getppid()
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")
        yield name.partition("(")[2]
        pid = int(rest.split()[1])
