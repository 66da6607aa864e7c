"""What carries the messages of the ranks of a stage."""

from __future__ import annotations

from pipeline_core.distributed.ranks import Ranks
from pipeline_kernels.halo import SelfTransport, ThroughCpu, TorchTransport, Transport


def transport_of(ranks: Ranks) -> Transport:
    """Return a transport for tensors on the device of the ranks; all of them call it."""
    if ranks.size == 1:
        return SelfTransport()
    if ranks.device.type == "cpu" or not ranks.through_cpu:
        return TorchTransport(device=ranks.device)
    return ThroughCpu(TorchTransport())
