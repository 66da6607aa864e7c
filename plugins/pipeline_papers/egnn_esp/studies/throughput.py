"""Throughput of a node block in messages per second, figure 3 of the paper.

A call is the update of some atoms by the messages of all their edges: messages are made of the
embeddings of atoms and edges, rotated into the frames of their edges, mixed, rotated back, and
summed by attention. Frames are made before. Weights are random, as times do not depend on them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from pipeline_core.profiling.calls import measure
from pipeline_egnn_esp.model.irreps import make_node_stage
from pipeline_egnn_esp.model.layers import NodeBlock
from pipeline_egnn_esp.model.messages import Edges
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.message import Segments
from pipeline_papers.egnn_esp.studies.options import Throughput

_WITHIN: Final = 0.9
"""Fraction of the best throughput above which a device counts as saturated."""
_N_ELEMENTS: Final = 2
_LAYER: Final = 2
"""Layer from which blocks have all channels and orders, with and without parity."""


def study_throughput(
    options: Throughput, model: ESPOptions, device: torch.device
) -> dict[str, Any]:
    """Measure the throughput of node blocks.

    Args:
        options: Numbers of messages and channels to measure.
        model: All other sizes of the network.
        device: Device on which times are measured.

    Returns:
        device, threads, lmax; and `curves`, each with channels, message_bytes (size of a message in
        single precision before mixing), messages, seconds, per_second, and saturated, see
        `find_saturation`. JSON-able.
    """
    curves = []
    for channels in options.channels:
        own = {"channels": channels, "hidden_channels": channels, "value_channels": channels}
        sized = model.model_copy(update=own)
        messages, seconds = _measure_curve(options, sized, device)
        rates = [n / t for n, t in zip(messages, seconds, strict=True)]
        curves.append(
            {
                "channels": channels,
                "message_bytes": 3 * (model.lmax + 1) ** 2 * channels * 4,
                "messages": messages,
                "seconds": seconds,
                "per_second": rates,
                "saturated": find_saturation(messages, rates),
            }
        )
    threads = torch.get_num_threads() if device.type == "cpu" else None
    return {"device": device.type, "threads": threads, "lmax": model.lmax, "curves": curves}


def find_saturation(messages: Sequence[int], rates: Sequence[float]) -> int:
    """Return the smallest number of messages whose throughput is within 10 % of the best."""
    return next(n for n, rate in zip(messages, rates, strict=True) if rate >= _WITHIN * max(rates))


def _measure_curve(
    options: Throughput, model: ESPOptions, device: torch.device
) -> tuple[list[int], list[float]]:
    stage = make_node_stage(model, _LAYER)
    block = NodeBlock(model, _N_ELEMENTS, stage).to(device).eval()
    messages: list[int] = []
    seconds: list[float] = []
    for n in sorted(options.messages):
        x, e, edges = _make_inputs(n, options.degree, model, device)
        with torch.no_grad():
            measured = measure(partial(block, x, e, edges), device, options.repeats)
        messages.append(n)
        seconds.append(measured.median)
        if seconds[-1] > options.seconds_limit:
            break
    return messages, seconds


def _make_inputs(
    n: int, degree: int, model: ESPOptions, device: torch.device
) -> tuple[Tensor, Tensor, Edges]:
    """Return random atoms, and `n` edges to them from random senders."""
    draw = torch.Generator().manual_seed(0)
    n_atoms = -(-n // degree)
    rows = (model.lmax + 1) ** 2, model.channels
    senders = torch.randint(n_atoms, (n,), generator=draw)
    edges = Edges(
        receivers=Segments.of((torch.arange(n) // degree).to(device), n_atoms),
        senders=Segments.of(senders.to(device), n_atoms),
        frames=compute_edge_frames(
            torch.randn(n, 3, generator=draw, dtype=torch.float64), model.lmax, torch.float32
        ).to(device),
        gaussians=torch.rand(n, model.radial_functions, generator=draw).to(device),
        elements=torch.randint(_N_ELEMENTS, (n, 2), generator=draw).to(device),
    )
    x, e = (torch.randn(k, *rows, generator=draw).to(device) for k in (n_atoms, n))
    return x, e, edges
