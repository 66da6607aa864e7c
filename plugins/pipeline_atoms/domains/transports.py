"""Choice of the transport for halo exchange between ranks that share a structure."""

import torch

from pipeline_core.distributed.ranks import Ranks
from pipeline_kernels.halo import SelfTransport, ThroughCpu, TorchTransport, Transport


def choose_transport(ranks: Ranks) -> Transport:
    """Return a transport for tensors on the device of the ranks; all of them call it."""
    if ranks.size == 1:
        return SelfTransport()
    through_cpu = ranks.device.type == "cuda" and ranks.through_cpu
    direct = TorchTransport(device=torch.device("cpu") if through_cpu else ranks.device)
    return ThroughCpu(direct) if through_cpu else direct
