"""Shared by the families of SU(N) kernels: a contract for matrices, and random links."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from kernels.calls import COMPLEX
from kernels.contract import Call, KernelContract, Options
from kernels.su3.matrices import COLOURS, draw_real, draw_unitary
from tiers import run_first

C_FIRST = pytest.mark.parametrize(
    "implementation", run_first(["C", "reference"]), indirect=True, scope="module"
)


class LinkContract(KernelContract):
    """The contract of functions of links."""

    compiled = ({}, {"n_colours": 2})

    def choose_part(self, dtype: torch.dtype, chosen: Options) -> str:
        """Return the front end for three colours, and in double precision."""
        return "cubin" if chosen and dtype == torch.float32 else "ttir"


class MatrixContract(LinkContract):
    """The contract of functions of matrices, each of which stands for itself.

    Matrices may be narrow; real numbers, and all arithmetic, are double.
    """

    tolerances = {torch.float64: 1e-12, torch.float32: 2e-6}
    options: ClassVar[Mapping[str, Sequence[Any]]] = {"n": [23], "n_colours": COLOURS[::-1]}
    few = {"n": 2, "n_colours": 2}
    many = {"n": 33}
    empty = {"n": 0}
    random = {"n": st.integers(0, 40)}
    without = {"test_finite_differences": "families have them along the group, and near its walls"}
    interpreted = ({"n": 4, "n_colours": 2}, {"n": 5}, {"n": 131, "n_colours": 2})

    def make(self, dtype: torch.dtype = torch.float64, seed: int = 0, **chosen: Any) -> Call:
        """Make a call with matrices of a precision."""
        call = super().make(torch.float64, seed, **chosen)
        return call.lay_out(lambda x: x.to(COMPLEX[dtype]) if x.is_complex() else x)

    def choose_type(self, result: Tensor, dtype: torch.dtype) -> torch.dtype:
        """Return the type of a result."""
        return COMPLEX[dtype] if result.is_complex() else torch.float64

    def test_a_matrix_does_not_depend_on_its_neighbours(self, compiled_c):
        call = self.make(**self.many)
        whole = call.function(*call.tensors, *call.constants)
        parts = zip(*(x.split(7) for x in call.tensors), strict=True)
        results = [call.function(*part, *call.constants) for part in parts]
        if isinstance(whole, Tensor):
            whole, results = [whole], [[x] for x in results]
        for one, many in zip(whole, zip(*results, strict=True), strict=True):
            assert torch.equal(torch.cat(many), one)


def with_gradient(value: Callable, gradient: Callable, *, keep_result: bool = False) -> Callable:
    """Give a function the derivative that is written out beside it, for autograd.

    Args:
        value: Of a `reference.py`; its constants are no tensors.
        gradient: Beside it.
        keep_result: Whether that takes the first result, too.
    """

    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            results = value(*arguments)
            tensors = [x for x in arguments if isinstance(x, Tensor)]
            kept = [results if isinstance(results, Tensor) else results[0]] if keep_result else []
            ctx.save_for_backward(*tensors, *kept)
            ctx.constants = arguments[len(tensors) :]
            return results

        @staticmethod
        def backward(ctx: Any, *by: Tensor) -> Any:
            made = gradient(*ctx.saved_tensors, *by, *ctx.constants)
            made = (made,) if isinstance(made, Tensor) else made
            return *made, *(None for _ in ctx.constants)

    return Formula.apply


def draw_step(n: int, n_colours: int, n_paths: int = 3, seed: int = 0) -> list[Tensor]:
    """Draw links, paths in the group, and weights whose magnitudes sum to 0.9."""
    weights = draw_real(n, n_paths, seed=seed)
    weights = 0.9 * weights / weights.abs().sum(1, keepdim=True)
    paths = draw_unitary(n * n_paths, n_colours, seed + 1)
    paths = paths.view(n, n_paths, n_colours, n_colours)
    return [draw_unitary(n, n_colours, seed), paths, weights]


def draw_map(n: int, n_colours: int, bins: int = 3, seed: int = 0) -> list[Tensor]:
    """Draw matrices in the group, and parameters of splines."""
    parameters = draw_real(n, n_colours - 1, 3 * bins + 1, seed=seed)
    return [draw_unitary(n, n_colours, seed), parameters]
