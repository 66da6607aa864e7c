"""The contraction on the CPU: C where there is a compiler, numba elsewhere.

Threads take chunks of atoms; the derivatives by coefficients that the chunks of an element give are
added in their order, so that no result depends on the number of threads.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.equivariant.contraction import loops
from pipeline_kernels.equivariant.contraction.tables import Tables
from pipeline_kernels.threads import choose_threads

C_TYPES = {torch.float32: "float", torch.float64: "double"}


class Batch:
    """What each routine takes beside features: the atoms and the polynomial.

    Attributes:
        order: see `AtomsByElement`.
        chunks: see `AtomsByElement`.
        code: see `Polynomial`.
        sizes: see `Polynomial`.
    """

    def __init__(self, order: Tensor, chunks: Tensor, code: Tensor, sizes: Sequence[int]) -> None:
        self.order, self.chunks, self.code = (x.contiguous() for x in (order, chunks, code))
        self.sizes = np.array(sizes, np.int64)

    @property
    def tables(self) -> Tables:
        """The tables of the polynomial."""
        return Tables.of(self.code, self.sizes.tolist())

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return int(self.sizes[1])

    @property
    def n_terms(self) -> int:
        """Number of terms."""
        return int(self.sizes[4])


def value(features: Tensor, coefficients: Tensor, batch: Batch) -> Tensor:
    """Implement `reference.value`."""
    out = features.new_empty(len(features), batch.n_outputs, features.shape[2])
    _run("value", batch, x=features, c=coefficients, out=out)
    return out


def by_features(features: Tensor, coefficients: Tensor, weights: Tensor, batch: Batch) -> Tensor:
    """Implement `reference.by_features`."""
    found = features.new_empty(features.shape)
    _run("by_features", batch, x=features, c=coefficients, g=weights, by_x=found)
    return found


def by_coefficients(features: Tensor, weights: Tensor, batch: Batch, n_present: int) -> Tensor:
    """Implement `reference.by_coefficients`."""
    partial = features.new_empty(len(batch.chunks), batch.n_terms, features.shape[2])
    _run("by_coefficients", batch, x=features, g=weights, by_c=partial)
    return _by_element(partial, batch, n_present)


def tangents(
    features: Tensor, coefficients: Tensor, weights: Tensor, direction: Tensor, batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `reference.tangents`."""
    out = features.new_empty(len(features), batch.n_outputs, features.shape[2])
    by_x = features.new_empty(features.shape)
    partial = features.new_empty(len(batch.chunks), batch.n_terms, features.shape[2])
    results = {"out": out, "by_x": by_x, "by_c": partial}
    _run("tangents", batch, x=features, c=coefficients, g=weights, u=direction, **results)
    return out, by_x, _by_element(partial, batch, len(coefficients))


def _by_element(partial: Tensor, batch: Batch, n_present: int) -> Tensor:
    """Add what the chunks of each element give."""
    if len(partial) == n_present:
        return partial
    found = partial.new_zeros(n_present, *partial.shape[1:])
    return found.index_add_(0, batch.chunks[:, 0], partial)


class _Arrays(ctypes.Structure):
    """`Arrays` of native.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in loops.ARRAYS),
        ("order", ctypes.c_void_p),
        ("chunks", ctypes.c_void_p),
        ("n_chunks", ctypes.c_int64),
        ("n_channels", ctypes.c_int64),
    ]


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL | None:
    source = Path(__file__).with_name("native.c").read_text()
    library = native.load("contraction", source, REAL=C_TYPES[dtype])
    if library is not None:
        library.memory_size.argtypes = [ctypes.c_void_p]
        library.memory_size.restype = ctypes.c_int64
        for name in loops.ROUTINES:
            function = getattr(library, name)
            function.argtypes, function.restype = [ctypes.c_void_p] * 5, None
    return library


def _run(name: str, batch: Batch, **tensors: Tensor) -> None:
    """Call a routine in as many threads as its work repays; it writes to the last tensors."""
    tensors = {key: tensor.detach().contiguous() for key, tensor in tensors.items()}
    n_atoms, _, n_channels = tensors["x"].shape
    if n_atoms * n_channels == 0:
        return
    threads = choose_threads(tensors["x"].numel())
    library = _library(tensors["x"].dtype)
    if library is None:
        arrays = {key: tensor.numpy() for key, tensor in tensors.items()}
        loops.run(name, arrays, batch.order.numpy(), batch.chunks.numpy(), batch.tables, threads)
        return
    routine, counter = getattr(library, name), ctypes.c_int64(0)
    addresses = {key: tensor.data_ptr() for key, tensor in tensors.items()}
    arrays = _Arrays(
        **addresses,
        order=batch.order.data_ptr(),
        chunks=batch.chunks.data_ptr(),
        n_chunks=len(batch.chunks),
        n_channels=n_channels,
    )
    sizes = batch.sizes.ctypes.data
    n_bytes = library.memory_size(sizes)
    arguments = (ctypes.addressof(arrays), batch.code.data_ptr(), sizes, ctypes.addressof(counter))
    native.parallel(lambda: routine(*arguments, native.memory(n_bytes)), threads)
