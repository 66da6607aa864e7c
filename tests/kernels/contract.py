"""Contract of all kernels, tested the same way: a family gives its calls, and no more.

    class TestSoftmax(KernelContract):
        folder = "message/softmax"
        tolerances = {torch.float32: 2e-5, torch.float64: 1e-13}
        options = {"n_edges": [40, 3], "n_heads": [3, 1]}
        few, many, empty = {"n_edges": 5}, {"n_edges": 4000}, {"n_edges": 0}
        random = {"n_edges": st.integers(0, 60)}
        refused = [(0, lambda logits: logits[1:], "logits: expected")]

        def draw(self, generator, n_edges, n_heads):
            logits = torch.randn(n_edges, n_heads, generator=generator, dtype=torch.float64)
            ...
            return Call(segment_softmax, plain_softmax, [logits], [segments])

`draw` makes a call from the options, in float64 or complex128; the contract chooses the precision,
the device and the layout, and compares with the reference in double precision: some thirty tests.
Options are tried in pairs, in `make test-all` in their full product, which should be hundreds. A
family with several functions has an option for it, or several classes. Where a part cannot hold,
`without` gives the reason:

    without = {"second derivative": "nobody trains through it"}

Its keys are "derivatives", "second derivative" and the names of tests. What a family promises
beyond the contract (symmetries, exact solutions, limits of numbers) are tests beside the class.
Every folder with an `op.py` or a `reference.py` has such a class: `test_contract.py`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.testing import assert_close

from kernels.calls import (
    Call,
    convert,
    differentiate,
    flatten,
    prepare_argument,
    record_calls,
    spread_memory,
    transpose_memory,
)
from kernels.contract_options import give_options
from kernels.triton_runs import compute_interpreted, has_kernels, run_kernels
from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.eager import EagerOperator
from tiers import run_first

__all__ = ["Call", "KernelContract"]

RULES = "test_schema", "test_autograd_registration", "test_faketensor"
ORDERS = {"derivatives": 0, "second derivative": 1}
Options = Mapping[str, Any]


class KernelContract:
    """Tests of a kernel family, which gives its calls as the head of this file shows.

    Attributes:
        folder: Of the family in `pipeline_kernels`.
        tolerances: Largest errors by precision, in units of the largest number of a result, or 1.
        options: Of `draw`, by name: values of which each pair is tried. The first are the default.
        few: Options of a call small enough for finite differences.
        many: Options of a call that several threads share.
        empty: Options of a call without elements.
        random: Further values of options, drawn by hypothesis.
        lanes: Options of calls that fill whole vectors of a processor, or parts.
        third: Whether autograd can differentiate second derivatives once more.
        kernel_order: Up to which order kernels calculate derivatives; those beyond are plain torch,
            whose bits depend on the threads.
        interpreted: Options of calls of interpreted Triton kernels; all but the first wait for
            `make test-all`.
        compiled: Options of calls whose kernels Triton compiles, all but the first in
            `make test-all`; the first of those interpreted if not given.
        mixed: Largest error under autocast, for families that calculate in its type.
        refused: Place of an argument, what changes it, and the error message; without a place,
            what changes the list of all.
        untraced: Ends of the names of operators that torch checks in C alone: it traces no plain
            PyTorch that differentiates or counts rows, and some takes it a minute.
        without: Parts of the contract that do not hold, and why.
    """

    folder: ClassVar[str]
    tolerances: ClassVar[Mapping[torch.dtype, float]]
    options: ClassVar[Mapping[str, Sequence[Any]]] = {}
    few: ClassVar[Options] = {}
    many: ClassVar[Options] = {}
    empty: ClassVar[Options] = {}
    random: ClassVar[Mapping[str, st.SearchStrategy[Any]]] = {}
    lanes: ClassVar[Sequence[Options]] = ({},)
    third: ClassVar[bool] = False
    kernel_order: ClassVar[int] = 2
    interpreted: ClassVar[Sequence[Options]] = ({},)
    compiled: ClassVar[Sequence[Options]] = ()
    mixed: ClassVar[float | None] = None
    refused: ClassVar[Sequence[tuple[int | None, Callable[[Any], Any], str]]] = ()
    untraced: ClassVar[tuple[str, ...]] = ()
    without: ClassVar[Mapping[str, str]] = {}
    order: ClassVar[int] = 2

    def __init_subclass__(cls) -> None:
        """Leave out what `without` gives a reason for."""
        cls.order = min([2, *(ORDERS[part] for part in cls.without if part in ORDERS)])
        dropped = set(cls.without) - set(ORDERS)
        if not cls.__name__.startswith("Test"):
            return
        assert all(len(reason.split()) > 2 for reason in cls.without.values()), "why?"
        assert cls.refused or "test_refuses_what_does_not_fit" in dropped, "what is refused?"
        assert cls.empty or "test_without_elements" in dropped, "what has no elements?"
        assert dropped <= set(dir(KernelContract)), dropped
        if cls.order == 0:
            dropped |= {"test_finite_differences", "test_gives_derivatives_by_what_needs_them"}
        if not has_kernels(cls):
            dropped |= {"test_interpreted_kernels", "test_gpu_repeats_every_bit"}
        if "test_interpreted_kernels" in dropped:
            dropped.add("test_kernels_compile_for_a_gpu")
        if "test_autocast" in dropped:
            dropped.add("test_gpu_autocast")
        if not cls.third:
            dropped.add("test_third_derivative")
        for name in dropped:
            setattr(cls, name, None)

    def draw(self, generator: torch.Generator, **options: Any) -> Call:
        """Make a call in double precision."""
        raise NotImplementedError

    def check(self, results: list[Tensor], call: Call, dtype: torch.dtype) -> None:
        """Compare with the reference, differentiated by autograd, in double precision."""
        exact = differentiate(call.exact, self.order, dtype)
        assert len(results) == len(exact)
        for ours, theirs in zip(results, exact, strict=True):
            assert ours.shape == theirs.shape
            assert ours.dtype == self.choose_type(theirs, dtype)
            self.compare(ours.detach().cpu().to(theirs), theirs, self.tolerate(call, dtype))

    def tolerate(self, call: Call, dtype: torch.dtype) -> float:
        """Return the largest error of a call."""
        return self.tolerances[dtype]

    def choose_type(self, result: Tensor, dtype: torch.dtype) -> torch.dtype:
        """Return the type that a result has in a precision."""
        return convert(result, dtype).dtype

    def compare(self, ours: Tensor, exact: Tensor, tolerance: float) -> None:
        """Compare numbers of one result."""
        size = max(1.0, float(exact.abs().max())) if exact.numel() else 1.0
        assert_close(ours, exact.detach(), rtol=0, atol=tolerance * size)

    def check_operator(self, way: str, operator: EagerOperator, arguments: Sequence[Any]) -> None:
        """Run torch's checks of an operator; of its tracing, where plain PyTorch replaces C."""
        if way == "C":
            opcheck(operator, tuple(arguments), test_utils=RULES)
        elif not operator.label.endswith(self.untraced):
            opcheck(operator, tuple(arguments), test_utils="ALL")

    def prepare_interpreter(self, patch: pytest.MonkeyPatch) -> None:
        """Change what chooses by the device: interpreted kernels have tensors of the CPU."""

    def check_compiled(self, made: Mapping[str, Any]) -> None:
        """Look at what Triton makes of a kernel."""

    def choose_part(self, dtype: torch.dtype, chosen: Options) -> str:
        """Return up to what Triton compiles the kernels of a call: to "ttir", or to "cubin"."""
        return "cubin"

    def make(self, dtype: torch.dtype = torch.float64, seed: int = 0, **chosen: Any) -> Call:
        """Make a call with the default of each option that is not chosen."""
        defaults = {name: values[0] for name, values in self.options.items()}
        call = self.draw(torch.Generator().manual_seed(seed), **{**defaults, **chosen})
        return call.to(dtype)

    def differentiate(self, call: Call, dtype: torch.dtype, **how: Any) -> list[Tensor]:
        """Calculate all that is compared."""
        return differentiate(call, self.order, dtype, **how)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give tests their options."""
        give_options(metafunc, self)

    def test_equals_the_reference(self, way, dtype, chosen):
        """Values and derivatives, by C and by what stands in for it."""
        call = self.make(dtype, **chosen)
        self.check(self.differentiate(call, dtype), call, dtype)

    @pytest.mark.slow
    @pytest.mark.parametrize("n_examples", run_first([6, 40]))
    def test_equals_the_reference_at_random(self, use_implementation, use_threads, n_examples):
        @settings(max_examples=n_examples)
        @given(data=st.data())
        def check(data):
            self.check_at_random(use_threads, data)

        with use_implementation("C"):
            check()

    def check_at_random(self, use_threads: Any, data: st.DataObject) -> None:
        """Compare one random call."""
        strategies = {k: st.sampled_from(list(values)) for k, values in self.options.items()}
        chosen = {k: data.draw(x, k) for k, x in {**strategies, **self.random}.items()}
        dtype = data.draw(st.sampled_from(list(self.tolerances)), "dtype")
        call = self.make(dtype, seed=data.draw(st.integers(0, 2**32), "seed"), **chosen)
        with use_threads(data.draw(st.sampled_from([1, 2]), "threads")):
            results = self.differentiate(call, dtype)
        self.check(results, call, dtype)

    def test_without_elements(self, way):
        for dtype in self.tolerances:
            call = self.make(dtype, **self.empty)
            self.check(self.differentiate(call, dtype), call, dtype)

    @pytest.mark.slow
    def test_finite_differences(self, way):
        call = self.make(**self.few)
        tensors = [x.requires_grad_() for x in call.tensors]

        def function(*tensors):
            return tuple(flatten(call.function(*tensors, *call.constants)))

        assert gradcheck(function, tensors)
        assert self.order < 2 or gradgradcheck(function, tensors)

    def test_third_derivative(self, way):
        """Of a gradient's gradient, by plain torch."""
        call = self.make(**self.few)

        def derive(call):
            leaves = [(0.3 * x.detach()).requires_grad_() for x in call.tensors]
            total = sum(y.sin().sum() for y in flatten(call.function(*leaves, *call.constants)))
            for _ in range(2):
                moving = torch.autograd.grad(total, leaves[: call.n_twice], create_graph=True)
                total = sum(x.square().sum() for x in moving)
            return torch.autograd.grad(total, leaves)

        for ours, exact in zip(derive(call), derive(call.exact), strict=True):
            self.compare(ours, exact, 1e-9)

    @pytest.mark.parametrize("lay_out", [transpose_memory, spread_memory])
    def test_arguments_may_lie_in_any_way(self, way, lay_out):
        call = self.make().lay_out(lay_out)
        results = self.differentiate(call, torch.float64, lay_out=lay_out)
        self.check(results, call, torch.float64)

    def test_gives_derivatives_by_what_needs_them(self, way):
        """Those by one tensor alone equal those by all."""
        call = self.make()

        def derive(wanted):
            leaves = [x.detach().requires_grad_(i in wanted) for i, x in enumerate(call.tensors)]
            values = flatten(call.function(*leaves, *call.constants))
            total = sum(x.abs().square().sum() for x in values if x.requires_grad)
            return torch.autograd.grad(total, [leaves[i] for i in wanted], materialize_grads=True)

        for k, expected in enumerate(derive(range(len(call.tensors)))):
            self.compare(*derive([k]), expected, self.tolerances[torch.float64])

    def test_threads_change_no_bit(self, use_implementation, use_threads):
        order = min(self.order, self.kernel_order)
        for dtype in self.tolerances:
            call, results = self.make(dtype, **self.many), []
            for n_threads in (1, 2, 3):
                with use_implementation("C"), use_threads(n_threads):
                    results.append(differentiate(call, order, dtype))
            for other in results[1:]:
                assert all(map(torch.equal, results[0], other))

    @pytest.mark.parametrize("level", run_first(LEVELS, "x86-64-v3"))
    def test_processors_with_shorter_vectors(self, use_level, level):
        for dtype, chosen in product(self.tolerances, self.lanes):
            call = self.make(dtype, **chosen)
            with use_level(level):
                results = self.differentiate(call, dtype)
            self.check(results, call, dtype)

    @pytest.mark.slow
    def test_operators_keep_the_rules_of_torch(self, way):
        """Each operator, with the arguments that it had first."""
        with record_calls() as calls:
            self.differentiate(self.make(**self.few), torch.float64)
        assert calls
        for operator, arguments in calls.values():
            smooth = operator.derivative is not None
            self.check_operator(way, operator, [prepare_argument(x, smooth) for x in arguments])

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # as dynamo does
    def test_compiles_without_a_graph_break(self):
        torch.compiler.reset()  # it compiles a function, here of all families, a few times only
        call = self.make(**self.few)

        def layer(*tensors):
            return [torch.tanh(x) for x in flatten(call.function(*tensors, *call.constants))]

        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        order, tolerance = min(self.order, 1), self.tolerances[torch.float64]
        pair = (
            differentiate(replace(call, function=function, constants=()), order, torch.float64)
            for function in (compiled, layer)
        )
        for ours, eager in zip(*pair, strict=True):
            self.compare(ours, eager, tolerance)

    def test_autocast(self, way):
        """Derivatives have the types of what they are taken by, and are near the exact ones."""
        self.check_autocast("cpu")

    @pytest.mark.gpu
    def test_gpu_autocast(self, gpu):
        self.check_autocast(gpu)

    def check_autocast(self, device: str) -> None:
        """Compare what autocast gives on a device."""
        call, order = self.make(torch.float32), min(self.order, 1)
        with torch.autocast(device, torch.bfloat16):
            results = differentiate(call.to(device), order, torch.float32)
        exact = differentiate(call.exact, order, torch.float32)
        tolerance = self.tolerances[torch.float32] if self.mixed is None else self.mixed
        derivatives = results[-len(call.tensors) :] if order else []
        assert [x.dtype for x in derivatives] == [x.dtype for x in call.tensors if order]
        for ours, theirs in zip(results, exact, strict=True):
            self.compare(ours.cpu().to(theirs), theirs, tolerance)

    def test_refuses_what_does_not_fit(self, refused_case):
        place, change, message = refused_case
        call = self.make()
        arguments = [*call.tensors, *call.constants]
        if place is None:
            arguments = change(arguments)
        else:
            arguments[place] = change(arguments[place])
        with pytest.raises(ValueError, match=message):
            call.function(*arguments)

    @pytest.mark.slow
    def test_interpreted_kernels(self, interpreted, interpreted_case):
        """Triton's kernels, which the interpreter runs without a GPU."""
        chosen, dtype = interpreted_case
        path = inspect.getfile(type(self))
        results, used = interpreted(compute_interpreted, path, type(self).__name__, dtype, chosen)
        assert used, "no kernel ran"
        self.check(results, self.make(dtype, **chosen), dtype)

    @pytest.mark.slow
    def test_kernels_compile_for_a_gpu(self, compile_launches, compiled_case):
        chosen, dtype = compiled_case
        capability = 90 if dtype in (torch.float32, torch.float16) else 80
        launches = compile_launches(capability, self.choose_part(dtype, chosen))
        run_kernels(self, dtype, chosen)
        assert launches
        for made in launches:
            self.check_compiled(made)

    @pytest.mark.gpu
    def test_gpu_equals_the_reference(self, gpu, dtype, chosen):
        call = self.make(dtype, **chosen)
        self.check(self.differentiate(call.to(gpu), dtype), call, dtype)

    @pytest.mark.gpu
    def test_gpu_shares_many(self, gpu):
        """Values and derivatives of as many elements as several programs share."""
        for dtype in self.tolerances:
            call = self.make(dtype, **self.many)
            self.check(self.differentiate(call.to(gpu), dtype), call, dtype)

    @pytest.mark.gpu
    def test_gpu_repeats_every_bit(self, gpu):
        order = min(self.order, self.kernel_order)
        for dtype in self.tolerances:
            call = self.make(dtype, **self.many).to(gpu)
            results = [differentiate(call, order, dtype) for _ in range(2)]
            assert all(map(torch.equal, *results))
