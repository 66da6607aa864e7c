"""Limits of numbers of atoms, by the memory of this machine."""

import math
from typing import Annotated, Final

from pydantic import AfterValidator

from pipeline_core.config.limits import limit_power, require_memory
from pipeline_core.config.sections import Count

ATOM_BYTES: Final = 200
"""Lower bound of the bytes per atom while atoms are moved or copied."""


def _limit_copies(value: tuple[int, int, int]) -> tuple[int, int, int]:
    require_memory(
        float(math.prod(value)) * ATOM_BYTES, f"{math.prod(value):.3g} copies of a single atom"
    )
    return value


Atoms = Annotated[Count, limit_power(1, ATOM_BYTES, "{} atoms")]
"""Atoms of one structure."""
Copies = Annotated[tuple[Count, Count, Count], AfterValidator(_limit_copies)]
"""Copies of a cell along its vectors."""
