"""File formats of link configurations shared with other lattice programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline_gauge_flows.data.formats.configuration import Configuration
from pipeline_gauge_flows.data.formats.ildg import read_ildg, write_ildg
from pipeline_gauge_flows.data.formats.nersc import read_nersc, write_nersc

__all__ = [
    "READERS", "WRITERS", "Configuration", "read_ildg", "read_nersc", "write_ildg", "write_nersc",
]  # fmt: skip

READERS: Final[dict[str, Callable[[Path], Configuration]]] = {
    "ildg": read_ildg,
    "nersc": read_nersc,
}
"""Readers by the names in dataset files."""
WRITERS: Final[dict[str, Callable[[Path, Configuration], None]]] = {
    "ildg": write_ildg,
    "nersc": write_nersc,
}
"""Writers by the names in experiments."""
