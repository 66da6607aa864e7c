"""The Triton kernels of gated messages beyond the contract: narrow tables, compilers, memory.

Oracle: the formula in plain PyTorch with torch's own layer norm, differentiated by autograd, in
float64.
"""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from kernels.contract import compute_interpreted
from kernels.message.gated_case import KINDS, Case, ours, plain
from kernels.message.test_gated import Gated
from pipeline_kernels.message.gated import op
from tiers import exhaustive, run_first

ATOMS, ANGLES = "atom convolution", "angle update"
OPERATORS = {"_messages": "values", "_gradient": "gradient", "_second": "second"}


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


def detach(x):
    """Make arguments of an operator ready for another process."""
    if isinstance(x, list | tuple):
        return [detach(y) for y in x]
    return x.detach() if isinstance(x, torch.Tensor) else x


@pytest.fixture
def use_kernels(interpreted, monkeypatch):
    """Let the operators calculate by interpreted kernels."""
    from pipeline_kernels.message.gated import cuda

    def implement(name):
        kernel = getattr(cuda, name)
        return lambda *arguments: interpreted(kernel, *detach(arguments))

    for operator, name in OPERATORS.items():
        monkeypatch.setitem(getattr(op, operator).implementations, "cpu", implement(name))
    monkeypatch.setattr(op, "TRITON_DEVICES", {"cpu"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", run_first([ATOMS, ANGLES]))
def test_interpreted_kernels_read_narrow_tables(interpreted, kind):
    chosen, dtype = {"kind": kind, "n_messages": 10, "widths": (8, 3)}, torch.float32
    results, _ = interpreted(compute_interpreted, __file__, "Narrow", dtype, chosen)
    call = Narrow().make(dtype, **chosen)
    Narrow().check(results, call, dtype)
    if kind == ATOMS:  # where nothing is centred in bfloat16 before
        exact = plain(mix(Case.of(**chosen).to(dtype)).to(torch.float64))
        assert_close(results[0].double(), exact.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_gpu_reads_narrow_tables(gpu, kind):
    call = Narrow().make(torch.float32, kind=kind, n_messages=5000, widths=(64, 64))
    results = Narrow().differentiate(call.to(gpu), torch.float32)
    Narrow().check(results, call, torch.float32)


@exhaustive
def test_third_derivative_with_narrow_tables_is_plain_torch(use_kernels):
    case = mix(Case.of(ATOMS, 5, (4, 3)).to(torch.float32))
    (first,) = torch.autograd.grad(ours(case).sum(), case.tables[0], create_graph=True)
    (second,) = torch.autograd.grad(first.float().square().sum(), case.gain, create_graph=True)
    (third,) = torch.autograd.grad(second.square().sum(), case.tables[1])
    assert third.dtype == torch.bfloat16
    assert third.isfinite().all()
    assert third.abs().max() > 0


def check_autocast(device):
    """A linear layer makes the tables in bfloat16, and all derivatives come in float32."""
    case = Case.of(ATOMS, 30, (16, 16)).to(torch.float32).to(device)
    linear = torch.nn.Linear(32, 32, bias=False).to(device)
    seen = []

    def layer(case, linear):
        tables = [linear(table) for table in case.tables]
        seen.append(tables[0].dtype)
        return ours(case.replace([*tables, case.factors, *case.parameters]))

    inputs = [*case.inputs, *linear.parameters()]
    with torch.autocast(device, dtype=torch.bfloat16):
        value = layer(case, linear)
    result = [value, *torch.autograd.grad(value.square().sum(), inputs)]
    assert {x.dtype for x in result} == {torch.float32}
    exact = layer(case, linear)
    assert seen == [torch.bfloat16, torch.float32]
    for one, other in zip(
        result, [exact, *torch.autograd.grad(exact.square().sum(), inputs)], strict=True
    ):
        assert (one - other).norm() < 0.02 * other.norm()


@exhaustive
def test_interpreted_kernels_under_autocast(use_kernels):
    check_autocast("cpu")


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["compute_messages", "compute_gradient", "compute_second"])
@pytest.mark.parametrize(
    "target",
    run_first([(90, "fp32", "fp32", 16), (80, "fp32", "bf16", 16), (90, "fp64", "fp64", 0)]),
)
def test_kernels_compile_for_a_gpu(compiled, kernel, target):
    from pipeline_kernels.message.gated import cuda_kernels

    capability, real, table, hidden = target
    p, t, index, constant = f"*{real}", f"*{table}", "*i64", "constexpr"
    factor, row = (t, index) if hidden else (constant, constant)
    has_g = kernel != "compute_messages"
    n_parameters = 4 if hidden else 2
    by_rows = [t, factor] if kernel == "compute_gradient" else [p, t, factor]
    signature = {
        "messages": p,
        "outputs": tuple(by_rows),
        "sums": (p,) * n_parameters,
        "directions": (t, t, t, t)[: 4 if hidden else 3],
        "data": (t, t, t, factor, p if has_g else constant),
        "rows": (index, index, row, row, row),
        "parameters": (p,) * n_parameters,
        "count": "i64",
        "SHAPE": constant,
    }
    function = getattr(cuda_kernels, kernel)
    precision = "tf32" if table == "bf16" else "tf32x3"
    constants = {"SHAPE": cuda_kernels.Shape(16, hidden, 32, precision)}
    for i, name in enumerate(function.arg_names):
        if isinstance(signature[name], tuple):
            missing = [j for j, kind in enumerate(signature[name]) if kind == constant]
            constants |= {(i, j): None for j in missing}
    made = compiled(capability, function, signature, constants, num_warps=4)
    assert made["cubin"]


@pytest.mark.gpu
def test_gpu_under_autocast(gpu):
    check_autocast(gpu)


@pytest.mark.gpu
def test_gpu_keeps_no_intermediates(gpu):
    """What stays between the passes is the result: less than one row of features a message."""
    case = Case.of("bond convolution", 100_000, (64, 64)).to(torch.float32).to(gpu)
    before = torch.cuda.memory_allocated()
    value = ours(case)
    assert value.requires_grad
    assert torch.cuda.memory_allocated() - before < 100_000 * 64 * 4
