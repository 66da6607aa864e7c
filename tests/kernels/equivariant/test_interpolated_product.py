"""Tensor products with interpolated weights.

Oracle: the product of the reference in plain PyTorch with the same weights, and autograd.
"""

import torch
from hypothesis import strategies as st

from kernels.contract import Call, KernelContract
from kernels.equivariant.product_case import draw_product
from pipeline_kernels.equivariant.tensor_product import ProductPlan, interpolated, reference
from pipeline_kernels.equivariant.tensor_product.interpolated import Ends
from pipeline_kernels.hermite import Places

N_INTERVALS = 7
PLAN = ProductPlan.of("0e+1o", 3, "0e+1o+2e+3o")


class Interpolated(torch.autograd.Function):
    """The product, and the reverse pass that is written out for it."""

    @staticmethod
    def forward(ctx, h, Y, x, table, senders, receivers):
        ctx.save_for_backward(h, Y, table)
        ctx.tail = Places.of(x, N_INTERVALS), Ends(senders, receivers, PLAN)
        return interpolated.multiply(h, Y, table, *ctx.tail)

    @staticmethod
    def backward(ctx, g):
        by_h, by_Y, by_x = interpolated.differentiate(
            g, *ctx.saved_tensors, *ctx.tail, by_features=ctx.needs_input_grad[0]
        )
        return by_h if ctx.needs_input_grad[0] else None, by_Y, by_x, None, None, None


def multiply_plainly(h, Y, x, table, senders, receivers):
    w, slopes = Places.of(x.detach(), N_INTERVALS).interpolate(table)
    w = (w + (x - x.detach())[:, None] * slopes).unflatten(1, (PLAN.n_paths, -1))
    ends = senders.index, receivers.index
    return reference.product(h, Y, w, ends, receivers.n_segments, PLAN)


class TestInterpolatedProduct(KernelContract):
    folder = "equivariant/tensor_product"
    tolerances = {torch.float32: 1e-4, torch.float64: 1e-12}
    options = {"channels": [16, 3], "ordered": [True, False]}  # whole vectors, and others
    few = {"n_nodes": 2, "n_edges": 3, "channels": 1}
    many, empty = {"n_nodes": 100, "n_edges": 700}, {"n_nodes": 0, "n_edges": 0}
    random = {"n_edges": st.integers(0, 30), "channels": st.sampled_from([1, 8, 16, 32])}
    without = {
        "second derivative": "the network's weights are constant",
        "test_operators_keep_the_rules_of_torch": "not an operator of torch",
        "test_compiles_without_a_graph_break": "not an operator of torch",
        "test_interpreted_kernels": "those of the tensor product calculate",
        "test_autocast": "trained networks calculate in a type of their own",
        "test_refuses_what_does_not_fit": "only our compiled networks call it",
    }

    def draw(self, generator, channels, ordered, n_nodes=6, n_edges=40):
        call = draw_product(generator, PLAN, n_nodes, n_edges, channels, ordered)
        (h, Y, _), (senders, receivers, _) = call.tensors, call.constants
        shape = 3 * (N_INTERVALS + 1), PLAN.n_paths * channels
        table = torch.randn(shape, generator=generator, dtype=torch.float64)
        x = N_INTERVALS * torch.rand(n_edges, generator=generator, dtype=torch.float64)
        constants = [table, senders, receivers]
        return Call(Interpolated.apply, multiply_plainly, [h, Y, x], constants)
