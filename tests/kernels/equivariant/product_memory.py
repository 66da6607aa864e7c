"""A program that differentiates a tensor product, by parts or all at once, and prints its peak.

In units of the weights of all edges. In a process of its own, since what others have left in its
memory would add to the peak or hide it.
"""

import json
import sys

import torch

from kernels.equivariant import test_product_in_parts as cases
from pipeline_core.profiling.memory import measure_peak
from pipeline_kernels.equivariant.tensor_product import multiply_in_parts, parts


def main() -> None:
    """Differentiate twice: what is loaded once does not count."""
    parts.PART_BYTES = 2**20
    function = {"parts": multiply_in_parts, "all": cases.multiply_all}[sys.argv[1]]
    operands, projection, graph = cases.draw(600, 20_000, 64, torch.float32)
    inputs = [t.requires_grad_() for t in operands]

    def differentiate() -> None:
        sums = function(*inputs, lambda x: x @ projection, *graph, cases.PLAN)
        torch.autograd.grad(sums.sum(), inputs)

    differentiate()
    peak = measure_peak(differentiate, torch.device("cpu"))
    weights = len(operands[2]) * projection.shape[1] * projection.element_size()
    print(json.dumps(None if peak is None else peak / weights))


if __name__ == "__main__":
    main()
