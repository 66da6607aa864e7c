"""The section `partition`: what ranks share, structures or their atoms."""

from __future__ import annotations

from typing import Literal

from pipeline_core.config.sections import NotNegative, PartitionOptions, Positive, Section

Method = Literal["auto", "low_nn", "metis", "metis_volume", "grid"]
"""Methods of `pipeline_kernels.partition`, which is too heavy to be imported here."""


class LinkOptions(Section):
    """What messages between ranks take, by which auto and grid choose.

    The defaults are those of GPUs: the bandwidth that the paper measures, and an assumed latency.
    An experiment with `infer.scaling` and no `link` there measures both between two processes of
    the machine it runs on, and shows them as `studies.scaling.latency` and `.bandwidth`.
    """

    latency: NotNegative = 20e-6
    """Seconds of a message."""
    bandwidth: Positive = 20.4e9
    """Bytes per second."""


class ESPPartitionOptions(PartitionOptions):
    """How work is shared between ranks."""

    parts: Literal["samples", "graph"] = "samples"
    """samples: each rank takes whole structures. graph: each rank takes a part of each structure,
    for structures that are too large for one, or fewer than ranks."""
    method: Method = "auto"
    """How the atoms of a structure are shared, with parts: graph."""
    link: LinkOptions = LinkOptions()
