"""Routines in C, for kernels that numba cannot make fast.

A library comes with the built package; a source tree compiles it at first use and keeps it in a
folder of the user, so a machine compiles each source once. It is called through ctypes: nothing is
linked to torch, and the interpreter's lock is free meanwhile. Where there is neither a library nor
a compiler, operators run their reference, and the user is warned once.

| variable                 | meaning                                                              |
|--------------------------|----------------------------------------------------------------------|
| `CC`                     | the compiler, `cc` if not set                                        |
| `PIPELINE_KERNELS_CACHE` | the folder, `$XDG_CACHE_HOME/pipeline_kernels` if not set            |
"""

import ctypes
import os
import shlex
import subprocess
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels import compiler
from pipeline_kernels.sources import FOLDER, write_source

C_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.complex64: "float",
    torch.complex128: "double",
}
LEVELS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}  # of what torch names so
PREBUILT = FOLDER / "prebuilt"
MAX_KEPT = 2**26  # bytes of memory that a thread keeps from call to call

_failures: dict[str, str] = {}
_thread = threading.local()

Argument = Tensor | np.ndarray | ctypes.Structure | int | None


class UnavailableError(RuntimeError):
    """There is no library, and none can be compiled."""


@cache
def load_library(name: str, prelude: str = "", **macros: str) -> ctypes.CDLL:
    """Load a library of `sources.SOURCES`: as built with the package, kept, or compiled now.

    Args:
        name: the key of the source.
        prelude: what stands before its files in place of its own.
        macros: macros to define, for instance `REAL="float"`.

    Raises:
        UnavailableError: if it cannot be had; the user has been warned.
    """
    return open_library(name, write_source(name, prelude), **macros)


@cache
def open_library(name: str, text: str, **macros: str) -> ctypes.CDLL:
    """Load the library that this C gives, as `load_library` does."""
    level = choose_level()
    file = compiler.name_library(name, text, macros, level)
    if (PREBUILT / file).exists():
        return ctypes.CDLL(str(PREBUILT / file))
    if file not in _failures:
        try:
            return ctypes.CDLL(str(_compile(file, text, macros, level)))
        except subprocess.CalledProcessError as error:
            _failures[file] = f"{shlex.join(error.cmd)}: {error.stderr.strip()}"
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            _failures[file] = str(error)
        _warn(f"{name}: {_failures[file]}")
    raise UnavailableError(_failures[file])


def choose_level() -> str:
    """Return the key of `compiler.LEVELS` whose instructions this processor has."""
    if len(compiler.LEVELS) == 1:
        return next(iter(compiler.LEVELS))
    return LEVELS.get(torch.backends.cpu.get_cpu_capability(), "x86-64-v2")


def _compile(file: str, text: str, macros: dict[str, str], level: str) -> Path:
    """Return where the library is kept, after compiling it unless it is there."""
    path = _open_cache() / file
    if not compiler.is_intact(path):
        compiler.compile_library(text, macros, level, path)
    return path


def _open_cache() -> Path:
    if chosen := os.environ.get("PIPELINE_KERNELS_CACHE"):
        folder = Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "pipeline_kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{error}; set PIPELINE_KERNELS_CACHE to a folder of yours") from error
    return folder


def _warn(reason: str) -> None:
    if len(_failures) == 1:  # the first of this process speaks for all
        warnings.warn(
            "Kernels without their library in C are left to plain PyTorch, which takes 3 to 30 "
            "times as long. Install a C compiler (cc, or name it by CC), or a wheel of this "
            f"package that was built where there is one. {reason}",
            RuntimeWarning,
            stacklevel=2,
        )


def call_routine(
    library: ctypes.CDLL, name: str, *arguments: Argument, n_threads: int, n_bytes: int = 0
) -> None:
    """Call a routine in several threads, which take its pieces from a counter that they share.

    Args:
        library: from `load_library`.
        name: of the routine. It takes the arguments, the address of the counter, and with
            `n_bytes` that of memory for the thread.
        arguments: tensors and arrays are passed by the address of their contiguous numbers (null
            without any), structures by theirs, numbers as `int64_t`.
        n_threads: number of threads.
        n_bytes: of memory that each thread needs.
    """
    routine, counter = getattr(library, name), ctypes.c_int64(0)
    values = [*map(_convert, arguments), ctypes.byref(counter)]

    def work() -> None:
        if n_bytes == 0:
            routine(*values)
            return
        own = np.empty(n_bytes, np.uint8) if n_bytes > MAX_KEPT else get_memory(n_bytes)
        routine(*values, ctypes.c_void_p(own.ctypes.data))

    run_in_threads(work, n_threads)


def compute_size(library: ctypes.CDLL, name: str, *arguments: Argument) -> int:
    """Call a function that returns an `int64_t`, with arguments as `call_routine` passes them."""
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    size: int = function(*map(_convert, arguments))
    return size


def make_plain(tensor: Tensor) -> Tensor:
    """Return a tensor as C reads it: contiguous, no conjugate or sign pending."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor  # mostly; an address is all that C asks for
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _convert(argument: Argument) -> ctypes.c_void_p | ctypes.c_int64:
    if isinstance(argument, Tensor):
        assert argument.is_contiguous()
        return ctypes.c_void_p(argument.data_ptr() if argument.numel() else None)
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, ctypes.Structure):
        return ctypes.c_void_p(ctypes.addressof(argument))
    return ctypes.c_void_p(None) if argument is None else ctypes.c_int64(argument)


def run_in_threads(work: Callable[[], None], n_threads: int) -> None:
    """Run `work` in so many threads at once, one of them the caller's.

    Each call has to take its pieces from a counter that all share, until none is left: a thread
    that starts late then finds nothing to do, and what has not started when the caller has finished
    is cancelled.

    Args:
        work: calls C and returns when no piece is left.
        n_threads: number of threads.
    """
    if n_threads == 1:
        work()
        return
    helpers = [_make_pool(os.getpid()).submit(work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        running = [helper for helper in helpers if not helper.cancel()]
        for helper in running:
            helper.exception()  # waits
    for helper in running:
        helper.result()


def get_memory(n_bytes: int) -> np.ndarray:
    """Return memory of the calling thread, kept from one call to the next.

    A new allocation of this size would be handed over by the system page by page, which takes
    longer than many a kernel.
    """
    kept: np.ndarray | None = getattr(_thread, "memory", None)
    if kept is None or kept.nbytes < n_bytes:
        kept = _thread.memory = np.empty(n_bytes, np.uint8)
    return kept


@cache
def _make_pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked one (a data loader's worker) inherits none."""
    return ThreadPoolExecutor(os.cpu_count(), f"pipeline_kernels-{process}")
