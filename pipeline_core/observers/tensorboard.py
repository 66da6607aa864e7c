"""Curves for TensorBoard in `tensorboard/` of a run, if PIPELINE_TENSORBOARD is set to 1."""

import logging
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pipeline_core import hookimpl
from pipeline_core.project.run import Run

logger = logging.getLogger(__name__)


def is_wanted() -> bool:
    """Return True if PIPELINE_TENSORBOARD requests curves.

    Raises:
        ValueError: The variable is neither 0 nor 1.
    """
    word = os.environ.get("PIPELINE_TENSORBOARD", "")
    if word not in ("", "0", "1"):
        raise ValueError(
            f"PIPELINE_TENSORBOARD: {word!r} is neither 1 nor 0; set it to 1 for curves"
        )
    return word == "1"


@hookimpl
def epoch(run: Run, record: Mapping[str, Any]) -> None:
    """Add the numbers of a finished epoch; a failed write is only a warning.

    Raises:
        ValueError: TensorBoard is requested but not installed.
    """
    if is_wanted():
        folder = run.folder / "tensorboard"
        try:
            _add(folder, record)
        except OSError as error:
            logger.warning(
                "%s: the curves of epoch %d cannot be written (%s)",
                *(folder, record["epoch"], error.strerror or error),
            )


def _add(folder: Path, record: Mapping[str, Any]) -> None:
    writer = _open_writer(folder)
    for name, value in _list_scalars(record):
        writer.add_scalar(name, value, record["epoch"])
    writer.flush()


@cache
def _open_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "PIPELINE_TENSORBOARD is 1 but TensorBoard is not installed; run "
            "pip install 'pipeline-core[tensorboard]' or unset the variable"
        ) from error
    return SummaryWriter(folder)


def _list_scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _list_scalars(value, f"{prefix}{name}/")
        elif isinstance(value, list):  # one number per rank
            yield from _list_scalars(
                {str(rank): v for rank, v in enumerate(value)}, f"{prefix}{name}/"
            )
        elif isinstance(value, int | float):
            yield prefix + name, float(value)
