"""Memory that tensor products take, in units of the weights of all edges.

Of weights that are mapped part by part, or shared by two edges, little is in memory; where all are
there, they and their gradient are. Measured in a process of its own, since what others have left in
its memory would add to the peak or hide it: this file is a program, too.
"""

import json
import sys
from collections.abc import Callable

import pytest
import torch

from kernels.equivariant.product_case import (
    SECOND,
    draw_graph,
    draw_mixed,
    multiply_all,
    weigh_all,
)
from pipeline_core.profiling.memory import measure_peak
from pipeline_kernels.equivariant.mixed_product import mixed_product
from pipeline_kernels.equivariant.tensor_product import multiply_in_parts, parts
from processes import finish
from tiers import exhaustive

N_NODES, N_EDGES, CHANNELS = 600, 20_000, 64


def make_derivative(function: Callable[..., torch.Tensor]) -> Callable[[], None]:
    """Return a function that differentiates once."""
    parts.PART_BYTES = 2**20
    graph = draw_graph(N_NODES, 0, N_EDGES, ordered=True)
    *inputs, A = draw_mixed(SECOND, graph, CHANNELS, torch.float32, n_features=4)
    inputs = [t.requires_grad_() for t in inputs]

    def differentiate() -> None:
        sums = function(*inputs, lambda x: x @ A, graph.senders, graph.receivers, SECOND)
        torch.autograd.grad(sums.sum(), inputs)

    return differentiate


def make_training(function: Callable[..., torch.Tensor]) -> Callable[[], None]:
    """Return a function with the derivatives of a training on forces."""
    graph = draw_graph(N_NODES, N_EDGES // 2)
    operands = draw_mixed(SECOND, graph, CHANNELS, torch.float32)
    h, Y, x, A = inputs = [t.requires_grad_() for t in operands]

    def differentiate() -> None:
        out = function(*inputs, graph, SECOND)
        first = torch.autograd.grad(out.sin().sum(), [h, Y, x], create_graph=True)
        loss = out.square().sum() + sum(part.square().sum() for part in first)
        torch.autograd.grad(loss, [h, x, A])

    return differentiate


WAYS = {
    "parts": (make_derivative, multiply_in_parts),
    "all": (make_derivative, weigh_all),
    "mixed": (make_training, mixed_product),
    "shared": (make_training, multiply_all),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "least", "most"),
    [
        ("parts", 0, 0.9),
        ("mixed", 1, 3),
        pytest.param("all", 1.8, 3, marks=exhaustive),
        pytest.param("shared", 4, 10, marks=exhaustive),
    ],
)
def test_weights_of_all_edges_are_never_in_memory(way, least, most):
    measured = json.loads(finish(["-m", "kernels.equivariant.test_product_memory", way]))
    if measured is None:
        pytest.skip("the system has no such number")
    assert least < measured < most


def main() -> None:
    """Differentiate twice: what is loaded once does not count."""
    make, function = WAYS[sys.argv[1]]
    differentiate = make(function)
    differentiate()
    peak = measure_peak(differentiate, torch.device("cpu"))
    weights = N_EDGES * SECOND.n_paths * CHANNELS * 4
    print(json.dumps(None if peak is None else peak / weights))


if __name__ == "__main__":
    main()
