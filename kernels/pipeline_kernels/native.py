"""Routines in C, for kernels that numba cannot make fast.

A library comes with the built package; a source tree compiles it at first use and keeps it in a
folder of the user (`cache.py`), so a machine compiles each source once. It is called through
ctypes: nothing is linked to torch, and the interpreter's lock is released. With neither a library
nor a compiler, operators run their reference, and the user is warned once.

| variable                 | meaning                                                              |
|--------------------------|----------------------------------------------------------------------|
| `CC`                     | the compiler, `cc` if not set                                        |
| `PIPELINE_KERNELS_CACHE` | the folder, `$XDG_CACHE_HOME/pipeline_kernels` if not set            |
"""

import ctypes
import shlex
import struct
import subprocess
import warnings
from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

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
SHORTER = {"x86-64-v4": "x86-64-v3"}  # the level of vectors half as long, with all else
PREBUILT = FOLDER / "prebuilt"
MAX_ARGUMENTS = 24  # of a routine: as in thread_pool.c

P = ParamSpec("P")
R = TypeVar("R")

_failures: dict[str, str] = {}

Words = ctypes.Array[ctypes.c_int64]
Argument = Tensor | np.ndarray | Words | int | None


class _Call(ctypes.Structure):
    """`Call` of thread_pool.c."""

    _fields_ = (
        ("routine", ctypes.c_void_p),
        ("n_arguments", ctypes.c_int64),
        ("n_bytes", ctypes.c_int64),
        ("arguments", ctypes.c_int64 * MAX_ARGUMENTS),
    )


class UnavailableError(RuntimeError):
    """Missing library that cannot be compiled either."""


@cache
def load_library(
    name: str,
    dtype: torch.dtype | None = None,
    prelude: str = "",
    level: str = "",
    **macros: str,
) -> ctypes.CDLL:
    """Load a library of `sources.SOURCES`: as built with the package, kept, or compiled now.

    Args:
        name: the key of the source.
        dtype: of tensors, for the macro REAL; none if not given.
        prelude: what stands before its files in place of its own.
        level: key of `compiler.LEVELS`; by default the level of this processor.
        macros: macros to define.

    Raises:
        UnavailableError: if it cannot be had; the user has been warned.
    """
    if dtype is not None:
        macros["REAL"] = C_TYPES[dtype]
    return open_library(name, write_source(name, prelude), level, **macros)


@cache
def open_library(name: str, text: str, level: str = "", **macros: str) -> ctypes.CDLL:
    """Load the library that this C gives, as `load_library` does."""
    level = level or choose_level()
    file = compiler.name_library(name, text, macros, level)
    if (PREBUILT / file).exists():
        return ctypes.CDLL(str(PREBUILT / file))
    if file not in _failures:
        try:
            return ctypes.CDLL(str(compiler.keep_library(file, text, macros, level)))
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


def _warn(reason: str) -> None:
    if len(_failures) == 1:  # the first of this process speaks for all
        warnings.warn(
            "Kernels without their library in C are left to plain PyTorch, which takes 3 to 30 "
            "times as long. Install a C compiler (cc, or name it by CC), or a wheel of this "
            f"package that was built where there is one. {reason}",
            RuntimeWarning,
            stacklevel=2,
        )


def fall_back(in_c: Callable[P, R], reference: Callable[P, R]) -> Callable[P, R]:
    """Return a function in C that falls back to the reference without its library."""

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return in_c(*args, **kwargs)
        except UnavailableError:  # of which the user has been warned
            return reference(*args, **kwargs)

    return run


def prefer_c(like: Tensor, in_c: Callable[P, R], reference: Callable[P, R]) -> Callable[P, R]:
    """Choose the function for a tensor: in C on the CPU, where available."""
    return fall_back(in_c, reference) if like.device.type == "cpu" else reference


def call_routine(
    library: ctypes.CDLL, name: str, *arguments: Argument, n_threads: int, n_bytes: int = 0
) -> None:
    """Call a routine in several threads, which take its pieces from a counter that they share.

    Args:
        library: from `load_library`.
        name: of the routine. It takes the arguments, the address of the counter, and with
            `n_bytes` the address of a workspace of the thread.
        arguments: tensors and arrays are passed by the address of their contiguous numbers (null
            without any), structures (`pack`) by theirs, numbers as `int64_t`.
        n_threads: number of threads.
        n_bytes: of the workspace of each thread.

    Raises:
        MemoryError: if no thread can have so much.
    """
    numbers = [*map(_convert, arguments)]
    assert len(numbers) <= MAX_ARGUMENTS
    call = _Call(_find_address(library, name), len(numbers), n_bytes, (*numbers,))
    if load_library("thread_pool").run(ctypes.byref(call), ctypes.c_int64(n_threads)):
        raise MemoryError(f"{n_threads} threads of {n_bytes / 2**20:.0f} MiB each for {name}")


def pack(*members: Argument | float) -> Words:
    """Return a structure of C whose members are all words: addresses, `int64_t` and `double`.

    Args:
        members: in the order of the structure, passed as `call_routine` passes arguments. Tensors
            and arrays must be kept until C has read them.
    """
    words = (
        struct.unpack("q", struct.pack("d", x))[0] if isinstance(x, float) else _convert(x)
        for x in members
    )
    return (ctypes.c_int64 * len(members))(*words)


def compute_size(library: ctypes.CDLL, name: str, *arguments: Argument) -> int:
    """Call a function that returns an `int64_t`, with arguments as `call_routine` passes them."""
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    size: int = function(*(ctypes.c_int64(_convert(x)) for x in arguments))
    return size


def make_plain(tensor: Tensor) -> Tensor:
    """Return a tensor as C reads it: contiguous, no conjugate or sign pending."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor  # mostly; C needs an address only
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _convert(argument: Argument) -> int:
    """Return an address or a number as a word."""
    if argument is None or isinstance(argument, int):
        return argument or 0
    if isinstance(argument, Tensor):
        assert argument.is_contiguous()
        return argument.data_ptr() if argument.numel() else 0
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    return ctypes.addressof(argument)


@cache
def _find_address(library: ctypes.CDLL, name: str) -> int | None:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
