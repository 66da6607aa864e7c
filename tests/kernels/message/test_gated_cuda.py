"""The Triton kernels: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: the formula in plain PyTorch with torch's own layer norm, differentiated by autograd, in
float64.
"""

import pytest
import torch
from torch.testing import assert_close

from kernels.message.gated_case import KINDS, Case, everything, ours, plain
from pipeline_kernels.message.gated import op

RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}
ATOMS, ANGLES = "atom convolution", "angle update"
OPERATORS = {"_messages": "values", "_gradient": "gradient", "_second": "second"}


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


def close(result, case, tolerance):
    """Compare with the exact derivatives, each in the type that it is due."""
    wide = case.to("cpu").to(torch.float64)
    exact, size = everything(plain, wide), len(case.inputs)
    due = [result[0], *case.inputs, result[0], *case.inputs]
    assert len(result) == len(exact) == 2 + 2 * size
    for one, other, like in zip(result, exact, due, strict=True):
        assert one.dtype == like.dtype
        scale = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
        numbers = one.detach().cpu().double()
        assert_close(numbers, other.detach(), rtol=tolerance, atol=tolerance * scale)


def mix(case):
    """Return the case as heads of mixed precision have it."""
    inputs = [x.detach().bfloat16() for x in case.data] + [x.detach() for x in case.parameters]
    return case.replace([x.requires_grad_() for x in inputs])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n_messages", "widths", "dtype"),
    [
        (0, (5, 3), torch.float32),
        (1, (5, 17), torch.float32),
        (40, (4, 3), torch.float64),
        (150, (16, 16), torch.float32),  # more blocks than programs
        (20, (70, 5), torch.float32),
        (9, (130, 3), torch.float32),  # beyond the kernels
    ],
)
def test_interpreted_kernels_equal_the_plain_formula(use_kernels, kind, n_messages, widths, dtype):
    case = Case.of(kind, n_messages, widths, dtype)
    close(everything(ours, case), case, RELATIVE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["projected bond convolution", "projected angle update"])
def test_interpreted_kernels_take_what_is_projected(use_kernels, kind):
    case = Case.of(kind, 40, (4, 3), torch.float64)
    close(everything(ours, case), case, RELATIVE[torch.float64])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ATOMS, ANGLES])
def test_interpreted_kernels_read_narrow_tables(use_kernels, kind):
    case = mix(Case.of(kind, 10, (8, 3), torch.float32))
    result = everything(ours, case)
    close(result, case, RELATIVE[torch.bfloat16])
    if kind == ATOMS:  # where nothing is centred in bfloat16 before
        exact = plain(case.to(torch.float64))
        assert_close(result[0].double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_interpreted_kernels_leave_out_derivatives_by_parameters(use_kernels):
    case = Case.of(ATOMS, 5, (4, 3), torch.float32)
    wide = case.to(torch.float64)
    result = torch.autograd.grad(ours(case).sum(), case.data)
    exact = torch.autograd.grad(plain(wide).sum(), wide.data)
    for one, other in zip(result, exact, strict=True):
        assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_interpreted_kernels_repeat_every_bit(use_kernels):
    case = Case.of(ATOMS, 70, (4, 3), torch.float32)
    assert all(map(torch.equal, everything(ours, case), everything(ours, case)))


@pytest.mark.slow
def test_third_derivative_with_narrow_tables_is_plain_torch(use_kernels):
    case = mix(Case.of(ATOMS, 5, (4, 3), torch.float32))
    (first,) = torch.autograd.grad(ours(case).sum(), case.tables[0], create_graph=True)
    (second,) = torch.autograd.grad(first.float().square().sum(), case.gain, create_graph=True)
    (third,) = torch.autograd.grad(second.square().sum(), case.tables[1])
    assert third.dtype == torch.bfloat16
    assert third.isfinite().all()
    assert third.abs().max() > 0


def check_autocast(device):
    """A linear layer makes the tables in bfloat16, and all derivatives come in float32."""
    case = Case.of(ATOMS, 30, (16, 16), torch.float32).to(device)
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


@pytest.mark.slow
def test_interpreted_kernels_under_autocast(use_kernels):
    check_autocast("cpu")


def test_operators_have_kernels_for_gpus():
    pytest.importorskip("triton")
    case = Case.of(ANGLES, 0, (4, 4), torch.float32)
    g, operands = torch.zeros(0, 4), detach(case.operands())
    sums, _ = op._messages.implementations["cuda"](False, *operands)
    assert sums.shape == (0, 4)
    assert len(op._gradient.implementations["cuda"](g, True, None, *operands)) == 5
    assert len(op._second.implementations["cuda"](detach(case.data), g, *operands)) == 6


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["compute_messages", "compute_gradient", "compute_second"])
@pytest.mark.parametrize(
    ("capability", "real", "table", "hidden"),
    [(80, "fp32", "bf16", 16), (90, "fp32", "fp32", 16), (90, "fp64", "fp64", 0)],
)
def test_kernels_compile_for_a_gpu(compiled, kernel, capability, real, table, hidden):
    from pipeline_kernels.message.gated import cuda_kernels

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
@pytest.mark.parametrize("kind", [*KINDS, "projected bond convolution", "projected angle update"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("n_messages", "widths"),
    [(0, (5, 3)), (1, (5, 17)), (20_000, (64, 64)), (3000, (128, 128)), (99, (130, 3))],
)
def test_gpu_equals_the_plain_formula(gpu, kind, dtype, n_messages, widths):
    case = Case.of(kind, n_messages, widths, dtype).to(gpu)
    result = everything(ours, case)
    close(result, case, RELATIVE[dtype])
    assert all(map(torch.equal, result, everything(ours, case)))  # the same bits once more


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_gpu_reads_narrow_tables(gpu, kind):
    case = mix(Case.of(kind, 5000, (64, 64), torch.float32)).to(gpu)
    close(everything(ours, case), case, RELATIVE[torch.bfloat16])


@pytest.mark.gpu
def test_gpu_under_autocast(gpu):
    check_autocast(gpu)


@pytest.mark.gpu
def test_gpu_keeps_no_intermediates(gpu):
    """What stays between the passes is the result: less than one row of features a message."""
    case = Case.of("bond convolution", 100_000, (64, 64), torch.float32).to(gpu)
    before = torch.cuda.memory_allocated()
    value = ours(case)
    assert value.requires_grad
    assert torch.cuda.memory_allocated() - before < 100_000 * 64 * 4
