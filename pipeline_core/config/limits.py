"""Limits of numbers in a configuration, by the memory of this machine.

A number is refused if the memory that it needs, by a lower estimate, exceeds the machine's. The
full requirement is only known when a stage has read its data. Where a scheduler runs jobs on other
machines, the one that reads an experiment may be the smallest of them: then only numbers that no
machine could hold are refused, and the job finds out the rest.
"""

import shutil
from functools import cache
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from pipeline_core.system.memory import describe_bytes, find_total_memory

_CORES: Final = 2**24
"""More than the largest computers have."""
_SCHEDULERS: Final = ("sbatch", "qsub", "bsub", "condor_submit", "flux")
"""Commands that submit jobs to other machines."""
_LARGEST_NODE: Final = 2**45
"""Bytes, more than single machines of clusters have."""


def require_memory(n_bytes: float, what: str, cure: str = "lower it") -> None:
    """Check that something would fit into the memory of a machine with nothing else in it.

    The machine is this one, or the largest in existence where a scheduler chooses.

    Args:
        n_bytes: Lower bound of its size.
        what: What is stored, in the plural, for the message.
        cure: What to do, for the message.

    Raises:
        ValueError: It would not.
    """
    here = not _has_scheduler()
    total = find_total_memory() if here else _LARGEST_NODE
    if n_bytes > total:
        limit = "this machine has" if here else "no node has more than"
        raise ValueError(
            f"{what} take at least {describe_bytes(n_bytes)}, and {limit} {describe_bytes(total)} "
            f"of memory; {cure}"
        )


@cache
def _has_scheduler() -> bool:
    return any(map(shutil.which, _SCHEDULERS))


def limit_power(power: int, n_bytes: float, what: str) -> AfterValidator:
    """Return a validator of a whole number with memory that grows as a power of it.

    Args:
        power: The power.
        n_bytes: Lower bound of the bytes per unit of that power.
        what: What is stored, in the plural, for the message; {} is the number.
    """

    def check(value: int) -> int:
        require_memory(n_bytes * float(value) ** power, what.format(value))
        return value

    return AfterValidator(check)


def _limit_ranks(value: int) -> int:
    if value > _CORES:
        raise ValueError(f"no computer has cores for {value} ranks; lower it")
    return value


_Count = Annotated[int, Field(ge=1)]

Width = Annotated[
    _Count, limit_power(2, 16, "weights between layers of {} features, as they are trained,")
]
"""Features of a layer: maps from one layer to the next have the square of it as weights, each with
a gradient and two moments."""
Depth = Annotated[_Count, limit_power(1, 10_000, "{} layers")]
"""Layers, each of which is a module."""
Ranks = Annotated[_Count, AfterValidator(_limit_ranks)]
"""Processes of a computer."""
