"""Fixtures of every kernel family: chosen threads, and Triton without a GPU."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline_kernels import native, threads
from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.equivariant.tensor_product import cpu as product

CHOOSE_LEVEL = native.choose_level


@contextmanager
def _use_threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "GRAIN_SIZE", 1)
        torch.set_num_threads(n)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@pytest.fixture(scope="session")
def use_threads() -> Callable[[int], AbstractContextManager[None]]:
    """A context in which the kernels use so many threads however small their work is."""
    return _use_threads


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Callable]:
    """Call a function in a process of its own where Triton interprets kernels on CPU tensors.

    The choice is made when Triton is imported, so it cannot be made here.
    """
    pytest.importorskip("triton")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            pool.submit(os.getpid).result()  # starts the process in this environment
        yield lambda function, *args: pool.submit(function, *args).result()


@contextmanager
def _choose_level(choose: Callable[[], str]) -> Iterator[None]:
    caches = native.load_library, native.open_library, product._load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "choose_level", choose)
        for function in caches:
            function.cache_clear()
        yield
    for function in caches:
        function.cache_clear()


def _refuse() -> str:
    raise native.UnavailableError("left out by a test")


@contextmanager
def _use_implementation(name: str) -> Iterator[None]:
    with _choose_level(_refuse if name == "reference" else CHOOSE_LEVEL):
        if name == "C":
            _skip_without_c()
        yield


def _skip_without_c() -> None:
    try:
        native.load_library("tree", torch.float32)
    except native.UnavailableError as error:
        pytest.skip(f"needs a C compiler: {error}")


@pytest.fixture(scope="session")
def use_implementation() -> Callable[[str], AbstractContextManager[None]]:
    """A context in which operators calculate by "C", or by their "reference" as without it."""
    return _use_implementation


@contextmanager
def _use_level(name: str) -> Iterator[None]:
    if list(LEVELS).index(name) < list(LEVELS).index(CHOOSE_LEVEL()):
        pytest.skip(f"this processor is not one of {name}")
    with _choose_level(lambda: name):
        _skip_without_c()
        yield


@pytest.fixture(scope="session")
def use_level() -> Callable[[str], AbstractContextManager[None]]:
    """A context in which C is compiled for processors of a level of `compiler.LEVELS`."""
    return _use_level


@pytest.fixture
def gpu() -> str:
    """The name of the GPU; without one the test is skipped."""
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    return "cuda"


@pytest.fixture
def compile_launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[..., list[Any]]:
    """Make launches of Triton compile kernels for an absent GPU, and run nothing.

    The interpreter accepts more than the compiler. What that makes is listed as it comes; of large
    kernels the front end alone, where types and shapes are checked: the rest takes minutes.
    """
    pytest.importorskip("triton")
    from triton import compiler
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver, jit

    def compile_for(capability: int, part: str) -> list[Any]:
        target, made, launch = GPUTarget("cuda", capability, 32), [], jit.JITFunction.run
        gpu = SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: (capability, part),
            get_current_stream=lambda _: 0,
        )

        def run(kernel: Any, *arguments: Any, **options: Any) -> None:
            made.append(launch(kernel, *arguments, **options | {"warmup": True}).asm)
            assert made[-1][part]

        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(driver, "_active", gpu)
        monkeypatch.setattr(jit.JITFunction, "run", run)
        if part == "ttir":
            monkeypatch.setattr(compiler, "compile", _run_front_end)
        return made

    return compile_for


def _run_front_end(source: Any, target: Any, options: Any) -> Any:
    from triton._C.libtriton import ir
    from triton.compiler import make_backend

    backend, context, stages = make_backend(target), ir.context(), {}
    options = backend.parse_options(options)
    ir.load_dialects(context)
    backend.load_dialects(context)
    tools = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(target, options, *tools, context)
    backend.add_stages(stages, options, source.language)
    return SimpleNamespace(asm={"ttir": str(stages["ttir"](module, {}))})


@pytest.fixture(scope="module", params=["C", "reference"])
def implementation(request, use_implementation):
    """Everything in the test is calculated by C, then by what stands in where there is none."""
    with use_implementation(request.param):
        yield request.param


@pytest.fixture
def way(request, use_implementation):
    """Implementation under test: C, or its substitute."""
    with use_implementation(request.param):
        yield request.param


@pytest.fixture(scope="module")
def compiled_c(use_implementation):
    """Everything in the test is calculated by C: its oracle is the reference."""
    with use_implementation("C"):
        yield
