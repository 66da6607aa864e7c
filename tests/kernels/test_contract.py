"""Every kernel family keeps the contract, and a fault in a kernel is seen by it."""

import re
from pathlib import Path

import pytest
import torch

import pipeline_kernels
from kernels.contract import Call, KernelContract

SOURCES, TESTS = Path(pipeline_kernels.__path__[0]), Path(__file__).parent
NO_KERNELS = {
    "partition": "graphs are shared by numpy, and nothing is differentiated",
    "su3/splines": "they are a part of the spectral map, whose contract covers them",
}


def test_every_family_keeps_the_contract():
    files = [*SOURCES.rglob("op.py"), *SOURCES.rglob("reference.py")]
    families = {path.parent.relative_to(SOURCES).as_posix() for path in files}
    tests = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    tested = re.findall(r'^    folder = "(.+)"$', tests, re.MULTILINE)
    assert set(tested) == families - set(NO_KERNELS)


class Square(KernelContract):
    """Squares, with the fault that a test gives them."""

    tolerances = {torch.float64: 1e-12}
    options = {"n": [3]}
    few = many = {"n": 5}
    empty = {"n": 0}

    def __init__(self, fault=None):
        self.fault = fault

    def draw(self, generator, n):
        x = torch.rand(n, generator=generator, dtype=torch.float64) + 1
        return Call(self.fault or torch.square, torch.square, [x])


class Halved(torch.autograd.Function):
    """The square, with half its derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        (lambda x: x.square() + 1e-9, "test_equals_the_reference"),
        (lambda x: x.square().float(), "test_equals_the_reference"),
        (Halved.apply, "test_equals_the_reference"),
        (lambda x: x.detach().square() + 2 * x.detach() * x, "test_equals_the_reference"),
        (lambda x: x.new_ones(max(1, len(x))) * x.square().sum(), "test_without_elements"),
        (lambda x: x.as_strided((3,), (1,), 0).square(), "test_arguments_may_lie_in_any_way"),
        (Halved.apply, "test_finite_differences"),
    ],
)
def test_faults_are_seen(fault, test):
    more = {
        "test_equals_the_reference": ("C", torch.float64, {}),
        "test_arguments_may_lie_in_any_way": ("C", lambda x: torch.stack([x, -x], -1)[..., 0]),
    }.get(test, ("C",))
    getattr(Square(), test)(*more)
    with pytest.raises((AssertionError, RuntimeError)):
        getattr(Square(fault), test)(*more)
