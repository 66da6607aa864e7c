"""Work that runs out of memory: what it was doing, and the cure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch

SMALLER: Final = "choose a smaller one by the options in its section `model`"
"""The cure for a model that is too large."""
_SIGNS: Final = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC",
)
"""Words of torch for it, of which not all have an exception of their own."""


@contextmanager
def explain_exhaustion(describe: Callable[[], str]) -> Iterator[None]:
    """Turn an error for want of memory into one that says what was done, and the cure.

    Args:
        describe: Returns that, after "out of memory ".

    Raises:
        ValueError: Memory did not suffice.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_exhaustion(error):
            raise
        first = (str(error).splitlines() or ["no details"])[0]
        raise ValueError(f"out of memory {describe()} [{first}]") from error


def is_exhaustion(error: BaseException) -> bool:
    """Return whether an error says that memory did not suffice."""
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or any(sign in str(error) for sign in _SIGNS)
