"""Environment variables of the package; a misspelled one would have no effect."""

import difflib
import os
from collections.abc import Iterator, Mapping
from typing import Final

VARIABLES: Final = (
    *("PIPELINE_PARTITION", "PIPELINE_ACCOUNT", "PIPELINE_QOS", "PIPELINE_GPU_PARTITION"),
    *("PIPELINE_NODES", "PIPELINE_GPUS", "PIPELINE_RANKS", "PIPELINE_THREADS", "PIPELINE_HOURS"),
    *("PIPELINE_SILENCE", "PIPELINE_TENSORBOARD", "PIPELINE_DEBUG", "PIPELINE_KERNELS_CACHE"),
)


def find_misspelled(environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield a message for each variable that is nearly one of ours; plugins may have their own."""
    for name in sorted(environment):
        if name.startswith("PIPELINE_") and name not in VARIABLES:
            for near in difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.9):
                yield f"nothing reads {name}; did you mean {near}?"
