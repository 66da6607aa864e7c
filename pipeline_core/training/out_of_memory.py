"""Out-of-memory errors: converted into messages with the place and the cure."""

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
"""Words in out-of-memory errors of torch, which have no single exception class."""


@contextmanager
def report_out_of_memory(describe: Callable[[], str]) -> Iterator[None]:
    """Convert an out-of-memory error into a ValueError with the place and the cure.

    Args:
        describe: Returns place and cure, as text to follow "out of memory ".

    Raises:
        ValueError: Memory did not suffice.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        first = (str(error).splitlines() or ["no details"])[0]
        raise ValueError(f"out of memory {describe()} [{first}]") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return True for an out-of-memory error."""
    is_typed = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return is_typed or any(sign in str(error) for sign in _SIGNS)
