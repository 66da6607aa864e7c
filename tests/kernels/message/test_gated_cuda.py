"""The Triton kernels of gated messages beyond the contract: narrow tables, compilers, memory.

Oracle: the formula in plain PyTorch with torch's own layer norm, differentiated by autograd, in
float64.
"""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from kernels.message.gated_case import KINDS, Case, ours, plain
from kernels.message.test_gated import Gated
from kernels.triton_runs import compute_interpreted, run_kernels
from tiers import exhaustive

ATOMS, ANGLES = "atom convolution", "angle update"


def mix(case):
    """Return the case as heads of mixed precision have it."""
    return case.replace([*(x.bfloat16() for x in case.data), *case.parameters])


class Narrow(Gated):
    """Messages from tables and factors in bfloat16, which derivatives by them have, too."""

    tolerances = {torch.float32: 2e-2}

    def draw(self, generator, **options):
        call = super().draw(generator, **options)
        case = mix(call.constants[0])
        return replace(call, tensors=[x.double() for x in case.inputs])

    def ours(self, *arguments):
        return ours(mix(arguments[-1].replace(arguments[:-1])))


@exhaustive
@pytest.mark.parametrize("kind", [ATOMS, ANGLES])
def test_interpreted_kernels_read_narrow_tables(interpreted, kind):
    chosen, dtype = {"kind": kind, "n_messages": 10, "widths": (8, 3)}, torch.float32
    results, _ = interpreted(compute_interpreted, __file__, "Narrow", dtype, chosen)
    call = Narrow().make(dtype, **chosen)
    Narrow().check(results, call, dtype)
    if kind == ATOMS:  # where nothing is centred in bfloat16 before
        exact = plain(mix(Case.of(**chosen).to(dtype)).to(torch.float64))
        assert_close(results[0].double(), exact.detach(), rtol=1e-5, atol=1e-5)


@exhaustive
@pytest.mark.parametrize("kind", [ATOMS, ANGLES])
def test_kernels_compile_with_narrow_tables(compile_launches, kind):
    launches = compile_launches(80, "cubin")
    run_kernels(Narrow(), torch.float32, {"kind": kind, "n_messages": 10, "widths": (16, 16)})
    assert launches


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_gpu_reads_narrow_tables(gpu, kind):
    call = Narrow().make(torch.float32, kind=kind, n_messages=5000, widths=(64, 64))
    results = Narrow().differentiate(call.to(gpu), torch.float32)
    Narrow().check(results, call, torch.float32)


def test_third_derivative_with_narrow_tables_is_plain_torch():
    case = mix(Case.of(ATOMS, 5, (4, 3)).to(torch.float32))
    (first,) = torch.autograd.grad(ours(case).sum(), case.tables[0], create_graph=True)
    (second,) = torch.autograd.grad(first.float().square().sum(), case.gain, create_graph=True)
    (third,) = torch.autograd.grad(second.square().sum(), case.tables[1])
    assert third.dtype == torch.bfloat16
    assert third.isfinite().all()
    assert third.abs().max() > 0


@pytest.mark.gpu
def test_gpu_keeps_no_intermediates(gpu):
    """Only the result stays between the passes: less than one row of features a message."""
    case = Case.of("bond convolution", 100_000, (64, 64)).to(torch.float32).to(gpu)
    before = torch.cuda.memory_allocated()
    value = ours(case)
    assert value.requires_grad
    assert torch.cuda.memory_allocated() - before < 100_000 * 64 * 4
