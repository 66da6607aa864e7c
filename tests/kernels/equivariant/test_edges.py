"""Edges of networks with constant weights. Oracle: the formulas in plain PyTorch, and autograd."""

import torch
from hypothesis import strategies as st

from kernels.contract import Call, KernelContract
from pipeline_kernels.equivariant.edges import differentiate_edges, measure_edges, reference

SCALE, N_INTERVALS = 8.0, 32


class Measures(torch.autograd.Function):
    """Harmonics and places of edges, and the way back to vectors that is written out for them."""

    @staticmethod
    def forward(ctx, vectors, lmax):
        ctx.edges, ctx.lmax = measure_edges(vectors, lmax, SCALE, N_INTERVALS), lmax
        directions, distance, harmonics, places = ctx.edges
        constant = directions, *places
        ctx.mark_non_differentiable(*constant)
        return harmonics, distance * SCALE, *constant

    @staticmethod
    def backward(ctx, by_harmonics, by_x, *_):
        return differentiate_edges(ctx.edges, by_harmonics, by_x, ctx.lmax, SCALE), None


def measure_plainly(vectors, lmax):
    edges = reference.measure(vectors, lmax, SCALE, N_INTERVALS)
    constant = (x.detach() for x in (edges.directions, *edges.places))
    return edges.harmonics, edges.distance * SCALE, *constant


class TestEdges(KernelContract):
    folder = "equivariant/edges"
    tolerances = {torch.float32: 2e-5, torch.float64: 1e-12}
    options = {"lmax": [3, 0, 1, 5], "n": [50, 3]}
    few, many, empty, random = {"n": 4}, {"n": 3000}, {"n": 0}, {"n": st.integers(0, 40)}
    without = {
        "second derivative": "the network's weights are constant",
        "test_operators_keep_the_rules_of_torch": "not an operator of torch",
        "test_compiles_without_a_graph_break": "not an operator of torch",
        "test_finite_differences": "places of edges between the knots are no smooth results",
        "test_autocast": "trained networks calculate in a type of their own",
        "test_refuses_what_does_not_fit": "only our compiled networks call it",
    }

    def draw(self, generator, lmax, n):
        """Vectors of any direction and of lengths within the knots, and beyond them."""
        vectors = torch.randn(n, 3, generator=generator, dtype=torch.float64)
        lengths = 0.1 + 4.9 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
        vectors *= lengths / vectors.norm(dim=1, keepdim=True)
        vectors[:3] = torch.eye(3)[:n]
        return Call(Measures.apply, measure_plainly, [vectors], [lmax])
