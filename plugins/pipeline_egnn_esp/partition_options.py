"""The section `partition`: what ranks share, structures or their atoms."""

from __future__ import annotations

from typing import Literal

from pipeline_core.config.sections import PartitionOptions

Method = Literal["auto", "low_nn", "metis", "metis_volume", "grid"]
"""Methods of `pipeline_kernels.partition`, which is too heavy to be imported here."""


class ESPPartitionOptions(PartitionOptions):
    """How work is shared between ranks."""

    parts: Literal["samples", "graph"] = "samples"
    """samples: each rank takes whole structures. graph: each rank takes a part of each structure,
    for structures that are too large for one, or fewer than ranks."""
    method: Method = "auto"
    """How the atoms of a structure are shared, with parts: graph."""
