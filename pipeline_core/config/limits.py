"""Numbers of a configuration that this machine cannot follow: refused, with what they would take.

What is asked for must fit into the memory of the machine, by an estimate that is too low in any
case. What else it takes is known when a stage has read its data. Where a scheduler hands out other
machines, the one that reads an experiment may be the smallest of them: what no machine holds is
refused there, and the rest is found out by the job.
"""

from __future__ import annotations

import math
import shutil
from functools import cache
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from pipeline_core.memory import describe_bytes, find_total_memory

ATOM_BYTES: Final = 200
"""Bytes that an atom takes while it is moved or copied, at the least."""
_CORES: Final = 2**24
"""More than the largest computers have."""
_SCHEDULERS: Final = ("sbatch", "qsub", "bsub", "condor_submit", "flux")
"""Commands that hand jobs to other machines."""
_LARGEST_NODE: Final = 2**45
"""Bytes, more than single machines of clusters have."""


def require_memory(n_bytes: float, what: str, cure: str = "lower it") -> None:
    """Check that something would fit into the memory of a machine, if nothing else were in it.

    The machine is this one, or the largest that there are where a scheduler chooses.

    Args:
        n_bytes: What it takes, at the least.
        what: What takes it, in the plural.
        cure: What to do.

    Raises:
        ValueError: It would not.
    """
    here = not _has_scheduler()
    total = find_total_memory() if here else _LARGEST_NODE
    if n_bytes > total:
        whose = "this machine has" if here else "no node has more than"
        raise ValueError(
            f"{what} take at least {describe_bytes(n_bytes)}, and {whose} {describe_bytes(total)} "
            f"of memory; {cure}"
        )


@cache
def _has_scheduler() -> bool:
    return any(map(shutil.which, _SCHEDULERS))


def limit_power(power: int, n_bytes: float, what: str) -> AfterValidator:
    """Return a validator of a whole number with whose power memory grows.

    Args:
        power: The power.
        n_bytes: Bytes for each unit of it, at the least.
        what: What takes them, in the plural; {} is the number.
    """

    def check(value: int) -> int:
        require_memory(n_bytes * float(value) ** power, what.format(value))
        return value

    return AfterValidator(check)


def _limit_ranks(value: int) -> int:
    if value > _CORES:
        raise ValueError(f"no computer has cores for {value} ranks; lower it")
    return value


def _limit_copies(value: tuple[int, int, int]) -> tuple[int, int, int]:
    require_memory(
        float(math.prod(value)) * ATOM_BYTES, f"{math.prod(value):.3g} copies of a single atom"
    )
    return value


_Count = Annotated[int, Field(ge=1)]

Width = Annotated[
    _Count, limit_power(2, 16, "weights between layers of {} features, as they are trained,")
]
"""Features of a layer: maps from one to the next have its square of weights, of which each has a
gradient and two moments."""
Depth = Annotated[_Count, limit_power(1, 10_000, "{} layers")]
"""Layers, of which each is a module."""
Ranks = Annotated[_Count, AfterValidator(_limit_ranks)]
"""Processes of a computer."""
Atoms = Annotated[_Count, limit_power(1, ATOM_BYTES, "{} atoms")]
"""Atoms of one structure."""
Copies = Annotated[tuple[_Count, _Count, _Count], AfterValidator(_limit_copies)]
"""Copies of a cell along its vectors."""
