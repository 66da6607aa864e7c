"""Oracles: the formula in plain PyTorch with torch's own layer norm; finite differences.

The compiled implementation exists in single precision alone; its oracle is the other in double.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.nn.functional import layer_norm, silu

from pipeline_chgnet.messages import Route, compiled, gated_messages, rows, tiled
from pipeline_chgnet.messages.route import Inputs
from pipeline_kernels.message import Segments

WIDTH, HIDDEN = 4, 3


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    monkeypatch.setitem(tiled.SIZES, "cpu", 7)  # several tiles, the last one not full


def segments(n_elements, n_segments):
    return Segments.of(torch.randint(max(n_segments, 1), (n_elements,)), n_segments)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def case(kind, n_messages=20):
    """Route and inputs as the three layers use them."""
    hidden = kind != "angle update"
    summed = kind != "angle update"
    width = HIDDEN if hidden else WIDTH
    sizes = [5, 6, 8] if kind == "atom convolution" else [5, 6, n_messages]
    plans = [segments(n_messages, n) for n in sizes]
    if kind != "atom convolution":
        plans[2] = None
    route = Route(
        tuple(plans),
        segments(n_messages, 7) if summed else None,
        segments(n_messages, 5) if summed else None,
        n_messages,
    )
    return route, {
        "tables": [random(n, 2 * width) for n in sizes],
        "gain": random(2, 1, WIDTH),
        "shift": random(2, 1, WIDTH),
        "weight": random(2, HIDDEN, WIDTH) if hidden else None,
        "bias": random(2, 1, WIDTH) if hidden else None,
        "factors": random(7, WIDTH) if summed else None,
    }


def centred(tensor, dim=-1):
    return tensor - tensor.mean(dim, keepdim=True)


def ours(route, tables, gain, shift, weight, bias, factors):
    if weight is None:
        tables = [centred(table.unflatten(1, (2, -1))).flatten(1) for table in tables]
        return gated_messages(route, tables, gain, shift, None, factors)
    return gated_messages(route, tables, gain, shift, (centred(weight), centred(bias)), factors)


def plain(route, tables, gain, shift, weight, bias, factors):
    """The formula of a gated perceptron, edge by edge, with nothing centred."""
    rows = [t if p is None else t[p.index] for t, p in zip(tables, route.tables, strict=True)]
    core, gate = sum(rows).chunk(2, dim=1)
    if weight is not None:
        core, gate = silu(core) @ weight[0] + bias[0], silu(gate) @ weight[1] + bias[1]
    core = layer_norm(core, (WIDTH,), gain[0, 0], shift[0, 0], eps=1e-5)
    gate = layer_norm(gate, (WIDTH,), gain[1, 0], shift[1, 0], eps=1e-5)
    messages = silu(core) * torch.sigmoid(gate)
    if factors is not None:
        messages = messages * factors[route.factors.index]
    if route.targets is None:
        return messages
    sums = messages.new_zeros(route.targets.n_segments, WIDTH)
    return sums.index_add(0, route.targets.index, messages)


KINDS = ["atom convolution", "bond convolution", "angle update"]


def differentiable(inputs):
    data = [*inputs["tables"], inputs["factors"]]
    parameters = [inputs[name] for name in ("gain", "shift", "weight", "bias")]
    return [t for t in data if t is not None], [t for t in parameters if t is not None]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.integers(0, 30))
def test_values_and_derivatives_equal_the_plain_formula(seed, kind, n_messages):
    torch.manual_seed(seed)
    route, inputs = case(kind, n_messages)
    data, parameters = differentiable(inputs)
    results = []
    for function in (ours, plain):
        value = function(route, **inputs)
        torch.manual_seed(seed)
        weights = torch.randn_like(value)
        first = torch.autograd.grad((weights * value).sum(), data, create_graph=True)
        change = sum((g * torch.randn_like(g)).sum() for g in first)
        results.append([value, *first, *torch.autograd.grad(change, [*data, *parameters])])

    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_first_derivative_equals_finite_differences(kind):
    torch.manual_seed(0)
    route, inputs = case(kind)
    data, parameters = differentiable(inputs)

    assert gradcheck(lambda *_: ours(route, **inputs), [*data, *parameters])


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivative_equals_finite_differences(kind):
    torch.manual_seed(0)
    route, inputs = case(kind)
    data, parameters = differentiable(inputs)
    gradient = random(*ours(route, **inputs).shape)

    def first(*_):
        return torch.autograd.grad(ours(route, **inputs), data, gradient, create_graph=True)

    assert gradcheck(first, [*data, *parameters, gradient])


def test_a_direction_that_does_not_matter_may_be_left_out():
    torch.manual_seed(0)
    route, inputs = case("atom convolution")
    table, *_ = inputs["tables"]

    (first,) = torch.autograd.grad(ours(route, **inputs).sum(), table, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), inputs["gain"])
    (expected,) = torch.autograd.grad(plain(route, **inputs).sum(), table, create_graph=True)
    (reference,) = torch.autograd.grad(expected.square().sum(), inputs["gain"])

    torch.testing.assert_close(second, reference)


def test_what_is_not_differentiable_says_so():
    torch.manual_seed(0)
    route, inputs = case("atom convolution")
    (by_gain,) = torch.autograd.grad(ours(route, **inputs).sum(), inputs["gain"], create_graph=True)

    with pytest.raises(NotImplementedError, match="derivative by parameters"):
        by_gain.sum().backward()


def results(implementation, route, inputs, gradient, directions):
    """All that an implementation computes, and all inputs cast to its precision, as one list."""
    dtype = torch.float32 if implementation is compiled else torch.float64
    cast = Inputs.of([None if t is None else t.detach().to(dtype) for t in flat(inputs)])
    gradient, directions = gradient.to(dtype), [t.to(dtype) for t in directions]
    first = implementation.first_derivative(route, gradient, cast)
    by_gradient, second = implementation.second_derivative(route, gradient, cast, directions)
    found = [implementation.values(route, cast), by_gradient]
    for derivative in (first, second):
        found += [*derivative.parameters, derivative.factors, derivative.h]
    return [t for t in found if t is not None]


def flat(inputs):
    names = ("gain", "shift", "weight", "bias", "factors")
    return [*(inputs[name] for name in names), *inputs["tables"]]


def compiled_case(kind, n_messages):
    route, inputs = case(kind, n_messages)
    for name in ("weight", "bias"):
        if inputs[name] is not None:
            inputs[name] = centred(inputs[name])
    gradient = random(5 if route.targets is not None else n_messages, WIDTH).detach()
    directions = [
        torch.randn_like(t) for t in [*inputs["tables"], inputs["factors"]] if t is not None
    ]
    return route, inputs, gradient, directions


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(KINDS),
    st.sampled_from([0, 1, rows.BLOCK, rows.BLOCK + 1, 40 * rows.BLOCK + 3]),
)
def test_compiled_equals_tiled(seed, kind, n_messages):
    torch.manual_seed(seed)
    arguments = compiled_case(kind, n_messages)

    ours, exact = (results(module, *arguments) for module in (compiled, tiled))

    for one, other in zip(ours, exact, strict=True):
        largest = other.abs().max().item() if other.numel() else 1.0
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5 * largest)


def test_the_number_of_threads_does_not_change_a_bit(monkeypatch):
    torch.manual_seed(0)
    arguments = compiled_case("bond convolution", 5000)
    found = []
    for n in (1, 2, 3):
        monkeypatch.setattr(compiled, "n_threads", lambda _, n=n: n)
        found.append(results(compiled, *arguments))

    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*found, strict=True))


def test_the_sigmoid_is_exact_to_the_last_bits():
    x = np.linspace(-120, 120, 100_001, dtype=np.float32)
    ours = np.array([rows.sigmoid(value) for value in x])

    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    normal = np.abs(x) < 87
    assert np.abs(ours / exact - 1)[normal].max() < 3e-7
    assert np.abs(ours - exact)[~normal].max() < 1e-37
