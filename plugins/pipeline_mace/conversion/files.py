"""Files of mace-torch, for `pipeline-core load` and `export`; torch is imported late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline_core.artifacts.foreign import ForeignFormat, ForeignModel
from pipeline_mace.conversion.published import ENDING, PUBLISHED

if TYPE_CHECKING:
    from torch import nn


def _read(path: Path, heads: Sequence[str]) -> ForeignModel:
    from pipeline_mace.conversion.foreign import describe, read_peer

    module = read_peer(path, heads)
    return ForeignModel(module, describe(module))


def _write(module: nn.Module, path: Path) -> None:
    from pipeline_mace.conversion.export import write_peer
    from pipeline_mace.model.network import MACE

    assert isinstance(module, MACE)
    write_peer(module, path)


MACE_TORCH: Final = ForeignFormat(
    name="mace-torch",
    ending=ENDING,
    read=_read,
    write=_write,
    published=PUBLISHED,
)
