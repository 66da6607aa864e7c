"""Halo exchange: message passing on a graph that is split between ranks.

Rank `r` owns the nodes `P_r` and every edge whose receiver it owns, so that attention and sums over
the edges of a node stay on one rank (the 'incoming edge' distribution of Kaniselvan et al.,
"Distributed Equivariant Graph Neural Networks for Large-Scale Electronic Structure Prediction",
section 4.1): domain decomposition. Senders that other ranks own are its ghosts, the halo `H_r`:

    A_r x = [x_own | x_halo],    x_own = x[P_r],    x_halo = x[H_r].

`exchange` is `A`, the forward communication: one message between two ranks that share edges. The
reverse communication, its transpose, sends gradients back along the same plan and sums them at
their owners,

    (A^T y)_i = y_i + sum of the rows that other ranks hold for node i,

and is the derivative of `A`, as `A` is the derivative of `A^T`: any order of derivative follows.
`start` and `wait` are the two halves of `exchange`, with work on interior edges in between; in the
backward pass that work overlaps with communication in the same way.

Conventions of training on a split graph:

- The loss of a rank is the part of its own nodes and edges, and the total loss is the sum over
  ranks. A backward pass on all ranks then leaves in the rows of a rank the gradient of that sum;
  gradients of parameters, which all ranks share, are parts that the trainer has to add.
- All ranks run the same program: an exchange and its derivatives need every rank, even one that
  owns nothing. A rank that leaves one out makes the others wait for ever.

| name             | what it is                                                                |
|------------------|---------------------------------------------------------------------------|
| `HaloPlan`       | rows to send and to receive; once per graph                               |
| `exchange`       | appends the halo to own rows                                              |
| `collect`        | its transpose: adds up at their owners the rows of own nodes and halos    |
| `start`          | posts the messages of an exchange and returns a `HaloRequest`             |
| `HaloRequest`    | a pending exchange; its `wait` returns the rows                           |
| `Transport`      | the interface of the three transports below                               |
| `SelfTransport`  | one rank                                                                  |
| `TorchTransport` | `torch.distributed`: gloo for tensors on CPUs, NCCL for tensors on GPUs   |
| `ThroughCpu`     | tensors on GPUs over a transport for CPUs, as where ranks share a GPU     |
"""

from pipeline_kernels.halo.exchange import HaloRequest, collect, exchange, start
from pipeline_kernels.halo.plan import HaloPlan
from pipeline_kernels.halo.transports import (
    SelfTransport,
    ThroughCpu,
    TorchTransport,
    Transport,
)

__all__ = [
    "HaloPlan",
    "HaloRequest",
    "SelfTransport",
    "ThroughCpu",
    "TorchTransport",
    "Transport",
    "collect",
    "exchange",
    "start",
]
