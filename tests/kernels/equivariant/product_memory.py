"""A program that differentiates a tensor product in one of several ways, and prints its peak.

In units of the weights of all edges. `parts` and `all` differentiate once, `mixed` and `shared`
differentiate the derivatives, with weights that two edges share. In a process of its own, since
what others have left in its memory would add to the peak or hide it.
"""

import json
import sys
from collections.abc import Callable

import torch

from kernels.equivariant import test_mixed_product as shared
from kernels.equivariant import test_product_in_parts as cases
from pipeline_core.profiling.memory import measure_peak
from pipeline_kernels.equivariant.mixed_product import mixed_product
from pipeline_kernels.equivariant.tensor_product import multiply_in_parts, parts

N_NODES, N_EDGES, CHANNELS = 600, 20_000, 64


def make_derivative(function: Callable[..., torch.Tensor]) -> tuple[Callable[[], None], int]:
    """Return what differentiates once, and the bytes of the weights."""
    parts.PART_BYTES = 2**20
    operands, projection, graph = cases.draw(N_NODES, N_EDGES, CHANNELS, torch.float32)
    inputs = [t.requires_grad_() for t in operands]

    def differentiate() -> None:
        sums = function(*inputs, lambda x: x @ projection, *graph, cases.PLAN)
        torch.autograd.grad(sums.sum(), inputs)

    return differentiate, len(operands[2]) * projection.shape[1] * projection.element_size()


def make_training(function: Callable[..., torch.Tensor]) -> tuple[Callable[[], None], int]:
    """Return what a training on forces differentiates, and the bytes of the weights."""
    graph, plan = shared.draw_graph(N_NODES, N_EDGES // 2), shared.PLANS["next layer"]
    (_, *operands), _ = shared.draw(plan, graph, CHANNELS, torch.float32)
    h, Y, x, A = inputs = [t.requires_grad_() for t in operands]

    def differentiate() -> None:
        out = function(*inputs, graph, plan)
        first = torch.autograd.grad(out.sin().sum(), [h, Y, x], create_graph=True)
        loss = out.square().sum() + sum(part.square().sum() for part in first)
        torch.autograd.grad(loss, [h, x, A])

    return differentiate, N_EDGES * A.shape[1] * A.element_size()


WAYS = {
    "parts": (make_derivative, multiply_in_parts),
    "all": (make_derivative, cases.multiply_all),
    "mixed": (make_training, mixed_product),
    "shared": (make_training, shared.multiply_all),
}


def main() -> None:
    """Differentiate twice: what is loaded once does not count."""
    make, function = WAYS[sys.argv[1]]
    differentiate, weights = make(function)
    differentiate()
    peak = measure_peak(differentiate, torch.device("cpu"))
    print(json.dumps(None if peak is None else peak / weights))


if __name__ == "__main__":
    main()
