"""Gated messages: C, and the reference where there is none.

Oracles: the formula in plain PyTorch with torch's own layer norm, differentiated by autograd;
finite differences.
"""

import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from kernels.message.gated_case import KINDS, NORM_EPSILON, PROJECTED, Case, ours, plain
from pipeline_kernels.message.gated import gated_messages, op
from pipeline_kernels.message.gated.op import _gradient
from tiers import cover_pairs

NAMES = "tables", "route", "gain", "shift", "hidden", "factors", "projection"
WIDTHS = [(4, 3), (1, 1), (16, 16), (20, 33), (64, 64), (70, 5)]


class Gated(KernelContract):
    """Messages of a kind; the last of the constants gives the places of the tensors."""

    folder = "message/gated"
    tolerances = {torch.float32: 4e-5, torch.float64: 2e-12}
    options = {
        "kind": [*KINDS, *PROJECTED],
        "n_messages": [20, 1, 65],
        "widths": WIDTHS,
    }
    few, empty = {"n_messages": 6, "widths": (3, 2)}, {"n_messages": 0}
    many = {"n_messages": 5000, "widths": (16, 16)}
    random = {
        "n_messages": st.sampled_from([0, 1, 30, 64, 65, 600]),
        "n_features": st.sampled_from([1, 5, 16, 31]),
    }
    lanes = [{"kind": kind, "widths": (64, 20)} for kind in (KINDS[0], PROJECTED[1])]
    third, mixed = True, 0.02
    interpreted = [
        {"n_messages": 10},
        *({"kind": kind, "n_messages": 150, "widths": (16, 16)} for kind in KINDS),
        *({"kind": kind, "widths": (70, 5)} for kind in PROJECTED),
        {"n_messages": 9, "widths": (130, 3)},  # beyond the kernels
        empty,
    ]

    def draw(self, generator, kind, n_messages, widths, n_features=5):
        case = Case.of(kind, n_messages, widths, n_features, generator)
        return Call(self.ours, self.plain, case.inputs, [case], len(case.data))

    def ours(self, *arguments):
        return ours(arguments[-1].replace(arguments[:-1]))

    def plain(self, *arguments):
        return plain(arguments[-1].replace(arguments[:-1]))

    def tolerate(self, call, dtype):
        """Allow for the plain formula in double precision where there is one column.

        It has no variance: its normalization divides by sqrt(epsilon), and derivatives by its
        input are zero. The plain formula gets that zero as a difference of terms r =
        1 / sqrt(epsilon) as large as gradients. Each of at most 600 messages leaves some roundings
        of 1e-16 r, which add up to 600 r 1e-16 = 2e-11 times numbers of order 1: less than r times
        the tolerance.
        """
        has_one = call.constants[0].gain.shape[2] == 1
        oracle = self.tolerances[torch.float64] * NORM_EPSILON**-0.5 if has_one else 0.0
        return self.tolerances[dtype] + oracle

    def prepare_interpreter(self, patch):
        patch.setattr(op, "TRITON_DEVICES", {"cpu"})


class TestGated(Gated):
    refused = [(0, lambda table: table[:, :6][1:], r"tables\[0\]: expected .*, got \(4, 6\)")]


def test_a_direction_that_does_not_matter_may_be_left_out():
    case = Case.of("atom convolution")
    results = []
    for function in (ours, plain):
        (first,) = torch.autograd.grad(function(case).sum(), case.tables[0], create_graph=True)
        results += torch.autograd.grad(first.square().sum(), case.gain)

    assert_close(*results)


@pytest.mark.parametrize("kind", ["atom convolution", "projected bond convolution"])
def test_derivatives_by_parameters_are_left_out_where_nothing_needs_them(monkeypatch, kind):
    case, called = Case.of(kind), []
    original = _gradient._opoverload
    monkeypatch.setattr(
        "pipeline_kernels.message.gated.op._gradient",
        lambda *args: called.append(args[1]) or original(*args),
    )
    torch.autograd.grad(ours(case).sum(), case.tables[0])
    torch.autograd.grad(ours(case).sum(), case.gain)
    torch.autograd.grad(ours(case).sum(), case.hidden[0])
    ours(case).sum().backward()

    assert called == [False, True, True, True]


@pytest.mark.parametrize(
    ("kind", "widths", "dtype"),
    cover_pairs(KINDS + PROJECTED, WIDTHS, [torch.float32, torch.float64]),
)
def test_forces_of_a_fixed_network_use_what_the_values_have_kept(monkeypatch, kind, widths, dtype):
    """To the last bit alike: what is kept are the same numbers."""
    case = Case.of(kind, 600, widths).to(dtype)
    fixed = case.replace([*case.data, *(x.detach() for x in case.parameters)])
    results = []
    for limit in (op.MAX_KEPT, 0):
        monkeypatch.setattr(op, "MAX_KEPT", limit)
        sums = ours(fixed)
        results.append(torch.autograd.grad(sums.square().sum(), fixed.data))
    for kept, again in zip(*results, strict=True):
        assert torch.equal(kept, again)


@pytest.mark.parametrize(
    ("trained", "recorded", "limit", "kept"),
    [
        (False, True, 2**24, 20),
        (True, True, 2**24, 0),
        (False, False, 2**24, 0),
        (False, True, 9, 0),
    ],
)
def test_keeps_for_forces_of_a_small_structure(monkeypatch, trained, recorded, limit, kept):
    case, shapes = Case.of("atom convolution"), []
    original = op._messages._opoverload

    def watch(*args):
        results = original(*args)
        shapes.append(results[1].shape)
        return results

    monkeypatch.setattr(op, "_messages", watch)
    monkeypatch.setattr(op, "MAX_KEPT", limit)
    fixed = case.replace([*case.data, *(x.detach() for x in case.parameters)])
    with torch.set_grad_enabled(recorded):
        gated_messages(*(getattr(case if trained else fixed, name) for name in NAMES))

    assert shapes == [(kept, 2 * (4 + 3))]


def test_mixed_precision_is_calculated_in_float32():
    case = Case.of("atom convolution").to(torch.float32)
    narrow = case.replace([x.bfloat16() for x in case.data] + case.parameters)
    value = ours(narrow)
    assert value.dtype == torch.float32
    wide = narrow.replace([x.float() for x in narrow.inputs])
    assert torch.equal(value, ours(wide))
    grads = torch.autograd.grad(value.sum(), narrow.inputs)
    assert [g.dtype for g in grads] == [x.dtype for x in narrow.inputs]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_numbers_stay_finite_and_what_is_no_number_shows(use_implementation, dtype):
    case = Case.of("angle update", 3, (2, 2)).to(dtype)
    steep = case.replace([*case.data, 1e4 * case.gain, case.shift])
    for implementation in ("C", "reference"):
        with use_implementation(implementation):
            value = ours(steep)
            gradients = torch.autograd.grad(value.square().sum(), steep.tables)
            assert all(x.isfinite().all() for x in (value, *gradients))
            case.tables[2].data[1, 0] = torch.nan
            assert ours(case)[1].isnan().all()
            assert ours(case)[[0, 2]].isfinite().all()
            case.tables[2].data[1, 0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {"tables": c.tables[:2]}, "tables: expected 3, got 2"),
        (
            lambda c: {"tables": [*c.tables[:2], c.gain]},
            r"tables\[2\]: expected \(8, 6\) of .*, got",
        ),
        (lambda c: {"gain": c.gain[0]}, r"gain: expected \(2, 1, 4\)"),
        (lambda c: {"shift": c.shift.long()}, "shift: expected .* got .* of torch.int64"),
        (lambda c: {"shift": c.shift.to("meta")}, "shift: expected .* on cpu, got .* on meta"),
        (lambda c: {"hidden": (c.hidden[0], c.gain[:, :, :2])}, r"bias: expected \(2, 1, 4\)"),
        (lambda c: {"factors": None}, "factors: expected a tensor and a plan in the route"),
        (lambda c: {"projection": c.gain}, r"projection: expected \(2, 6, 3\) .* \(2, 1, 4\)"),
        (lambda c: {"factors": c.factors[1:]}, r"factors: expected \(7, 4\) of .*, got \(6, 4\)"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    case = Case.of("atom convolution")
    arguments = {name: getattr(case, name) for name in NAMES}
    with pytest.raises(ValueError, match=message):
        gated_messages(**arguments | change(case))
