"""Block averaging: standard errors of averages over a run."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BLOCKS: Final = 5
"""Number of blocks in the second half of a run."""


def find_block_error(values: Floats) -> Floats:
    """Return the standard error of the mean over blocks, the first axis; at least two."""
    assert len(values) > 1, "one block has no error"
    error: Floats = np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))
    return error
