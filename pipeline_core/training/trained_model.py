"""Model file of a run: the finished model, or the best one so far of its training."""

import logging
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

MODEL: Final = "model.pt"
BEST: Final = Path("state", "best.pt")
"""In the folder of a run: the model of the best epoch so far, until the training has ended."""


def find_model_file(path: Path) -> Path:
    """Return the model file for a path; it may be missing.

    Where a training has not ended, because it runs or was killed, its best model so far stands in
    for the finished one, with a warning.

    Args:
        path: A `model.pt`, or the folder of a run.
    """
    model = path / MODEL if path.is_dir() else path
    best = model.parent / BEST
    if model.name != MODEL or model.exists() or not best.is_file():
        return model
    from pipeline_core.artifacts import store

    provenance = store.read_provenance(best)
    logger.warning(
        "%s: the training has not ended; %s is taken, its best model so far, of epoch %s",
        *(model, best, provenance.get("epoch", "?")),
    )
    return best
