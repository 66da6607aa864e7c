"""The channelwise tensor product, on the CPU and by Triton.

Oracles: e3nn's `TensorProduct` with its spherical harmonics and Wigner matrices, followed by
`index_add`; rotation and inversion; finite differences; the formula in plain PyTorch.
"""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import KernelContract
from kernels.equivariant.product_case import FIRST, PLANS, draw_product, represent
from pipeline_kernels.equivariant.tensor_product import ProductPlan
from pipeline_kernels.message import Segments

o3 = pytest.importorskip("e3nn.o3")

SMALL = ProductPlan.of("0e + 1o", 1, "0e + 1o")  # fewer paths, compiled sooner


class TestTensorProduct(KernelContract):
    folder = "equivariant/tensor_product"
    tolerances = {torch.float32: 1e-5, torch.float64: 2e-14}
    options = {"plan": [*PLANS], "channels": [21, 16], "ordered": [False, True]}
    few = {"plan": "twice the same", "n_nodes": 2, "n_edges": 2, "channels": 1}
    many = {"n_nodes": 150, "n_edges": 700, "channels": 16}
    empty = {"n_nodes": 0, "n_edges": 0}
    random = {
        "n_nodes": st.integers(1, 12),
        "n_edges": st.integers(0, 30),
        "channels": st.sampled_from([0, 1, 3, 8, 16, 33, 128]),
    }
    interpreted = [
        {"plan": SMALL, "n_nodes": 2, "n_edges": 2, "channels": 5},
        {"plan": FIRST, "n_nodes": 4, "n_edges": 4, "channels": 130},
        {"plan": "pseudovectors", "n_nodes": 2, "n_edges": 3, "channels": 1},
        {"n_nodes": 3, "n_edges": 0, "channels": 4},
        {"n_nodes": 0, "n_edges": 0, "channels": 4},
    ]
    third, mixed = True, 0.02
    refused = [
        (0, lambda h: h[:, :3], r"h: expected \(9, 4, C\) of .*, got \(9, 3, 21\)"),
        (0, lambda h: h.sum(), r"h: expected \(9, 4, C\)"),
        (0, torch.Tensor.half, r"h: expected .* or torch.float64, got .*torch.float16"),
        (1, lambda Y: Y[:, :9], r"Y: expected \(40, 16\) of .*, got \(40, 9\)"),
        (1, lambda Y: Y.to("meta"), r"Y: expected .* on cpu, got .* on meta"),
        (2, lambda w: w[..., :2], r"w: expected \(40, 10, 21\)"),
        (2, torch.Tensor.float, r"w: expected .* of torch.float64 .* got .* of torch.float32"),
        (4, lambda _: Segments.of(torch.tensor([0]), 1), "receivers: expected 40 .* got 1"),
    ]
    draw = staticmethod(draw_product)


def draw(plan, **sizes):
    return draw_product(torch.Generator().manual_seed(0), plan, **sizes)


def make_irreps(parts, channels):
    return o3.Irreps([(channels, (irrep.l, irrep.parity)) for irrep in parts])


def to_e3nn(x, parts):
    """Turn channels-last features `(n, dim, C)` into e3nn's `(n, C * dim)`."""
    blocks = x.split([part.dim for part in parts], dim=1)
    return torch.cat([block.transpose(1, 2).flatten(1) for block in blocks], dim=1)


def list_instructions(plan, channels):
    """Paths found, sorted and numbered by e3nn, as in MACE."""
    inputs, targets = make_irreps(plan.irreps_in, channels), make_irreps(plan.irreps_target, 1)
    actual = [
        (i, j, (channels, result))
        for i, (_, one) in enumerate(inputs)
        for j, (_, two) in enumerate(o3.Irreps.spherical_harmonics(plan.lmax))
        for result in one * two
        if result in targets
    ]
    sorted_irreps, place, _ = o3.Irreps([result for *_, result in actual]).sort()
    numbered = [(i, j, place[k], "uvu", True) for k, (i, j, _) in enumerate(actual)]
    return sorted_irreps, sorted(numbered, key=lambda instruction: instruction[2])


@pytest.fixture(params=PLANS.values(), ids=PLANS)
def plan(request):
    return request.param


def test_paths_are_those_of_mace(plan):
    results, instructions = list_instructions(plan, 1)
    assert [(path.source, path.degrees[1]) for path in plan.paths] == [i[:2] for i in instructions]
    assert [str(irrep) for irrep in plan.irreps_out] == [str(irrep) for _, irrep in results]
    assert plan.dim_out == results.dim
    assert ProductPlan.decode(plan.encode()) == plan


def test_few_coefficients_are_not_zero():
    """Fewer than 20 % typically (Firoz et al., arXiv:2504.10700, section 4.1.1)."""
    assert FIRST.n_paths == 4
    tables = [path.compute_coefficients() for path in FIRST.paths]
    assert sum(np.count_nonzero(table) for table in tables) / sum(x.size for x in tables) < 0.2


def test_equals_e3nn(double_precision, plan):
    call = draw(plan)
    (h, Y, w), (senders, receivers, _) = call.tensors, call.constants
    results, instructions = list_instructions(plan, h.shape[2])
    product = o3.TensorProduct(
        make_irreps(plan.irreps_in, h.shape[2]),
        o3.Irreps.spherical_harmonics(plan.lmax),
        results,
        instructions,
        shared_weights=False,
    )
    messages = product(to_e3nn(h, plan.irreps_in)[senders.index], Y, w.flatten(1))
    out = messages.new_zeros(10, results.dim).index_add(0, receivers.index, messages)
    for function in (call.function, call.reference):
        ours = function(*call.tensors, *call.constants)
        assert_close(to_e3nn(ours, plan.irreps_out), out)


def test_turns_with_the_structure(double_precision, plan):
    torch.manual_seed(0)  # e3nn loses digits of some rotations
    turn, arrows, call = o3.rand_matrix(), torch.randn(40, 3), draw(plan)
    h, _, w = call.tensors

    def multiply(h, arrows):
        degrees = list(range(plan.lmax + 1))
        Y = o3.spherical_harmonics(degrees, arrows, normalize=True, normalization="component")
        return call.function(h, Y, w, *call.constants)

    plain = multiply(h, arrows)
    assert plain.abs().max() > 0.1
    for change in (turn, -turn):
        ours = multiply(represent(plan.irreps_in, change) @ h, arrows @ change.T)
        assert_close(ours, represent(plan.irreps_out, change) @ plain, rtol=0, atol=1e-9)


def test_infinity_stays_where_it_belongs(implementation):
    call = draw(FIRST)
    call.tensors[2][3, :, 2] = torch.inf
    broken = call.function(*call.tensors, *call.constants).isfinite().logical_not().nonzero()
    receiver = int(call.constants[1].index[3])
    assert broken[:, [0, 2]].unique(dim=0).tolist() == [[receiver, 2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0e", 1, "2e"), "no product of 0e with harmonics up to degree 1 gives 2e"),
        (("0e", -1, "0e"), "lmax: expected at least 0, got -1"),
        (("0e + 1", 1, "0e"), "as in 0e or 1o, got ' 1'"),
    ],
)
def test_plans_that_lead_nowhere_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ProductPlan.of(*arguments)
