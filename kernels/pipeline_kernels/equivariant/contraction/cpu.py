"""The contraction on the CPU, in C.

Threads take chunks of atoms; the derivatives by coefficients that the chunks of an element give are
added in their order, so that no result depends on the number of threads.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from pipeline_kernels.native import call_routine, compute_size, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads

TENSORS = ("x", "c", "g", "u", "out", "by_x", "by_c")  # in the order of `Arrays` in native.c
# Order and chunks of `AtomsByElement`, code and sizes of `Polynomial`.
Batch = tuple[Tensor, Tensor, Tensor, Sequence[int]]


def value(features: Tensor, coefficients: Tensor, *batch: *Batch) -> Tensor:
    """Implement `reference.value`."""
    out = features.new_empty(len(features), batch[3][1], features.shape[2])
    _run("value", batch, x=features, c=coefficients, out=out)
    return out


def by_features(features: Tensor, coefficients: Tensor, weights: Tensor, *batch: *Batch) -> Tensor:
    """Implement `reference.by_features`."""
    by_x = features.new_empty(features.shape)
    _run("by_features", batch, x=features, c=coefficients, g=weights, by_x=by_x)
    return by_x


def by_coefficients(features: Tensor, weights: Tensor, n_present: int, *batch: *Batch) -> Tensor:
    """Implement `reference.by_coefficients`."""
    _, chunks, _, sizes = batch
    partial = features.new_empty(len(chunks), sizes[4], features.shape[2])
    _run("by_coefficients", batch, x=features, g=weights, by_c=partial)
    return _sum_by_element(partial, chunks, n_present)


def tangents(
    features: Tensor, coefficients: Tensor, weights: Tensor, direction: Tensor, *batch: *Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `reference.tangents`."""
    _, chunks, _, sizes = batch
    out = features.new_empty(len(features), sizes[1], features.shape[2])
    by_x = features.new_empty(features.shape)
    partial = features.new_empty(len(chunks), sizes[4], features.shape[2])
    operands = {"x": features, "c": coefficients, "g": weights, "u": direction}
    results = {"out": out, "by_x": by_x, "by_c": partial}
    _run("tangents", batch, **operands, **results)
    return out, by_x, _sum_by_element(partial, chunks, len(coefficients))


def _sum_by_element(partial: Tensor, chunks: Tensor, n_present: int) -> Tensor:
    """Add up the results of the chunks of each element."""
    if len(partial) == n_present:
        return partial
    sums = partial.new_zeros(n_present, *partial.shape[1:])
    return sums.index_add_(0, chunks[:, 0], partial)


def _run(name: str, batch: Batch, **tensors: Tensor) -> None:
    """Call a routine in as many threads as its work repays; it writes to the last tensors."""
    library = load_library("contraction", tensors["x"].dtype)
    order, chunks, code = (table.contiguous() for table in batch[:3])
    plain = {key: make_plain(tensor) for key, tensor in tensors.items()}
    n_atoms, _, n_channels = plain["x"].shape
    if n_atoms * n_channels == 0:
        return
    sizes = np.array(batch[3], np.int64)
    arrays = pack(*map(plain.get, TENSORS), order, chunks, len(chunks), n_channels)
    n_threads, n_bytes = (
        choose_threads(plain["x"].numel()),
        compute_size(library, "memory_size", sizes),
    )
    call_routine(library, name, arrays, code, sizes, n_threads=n_threads, n_bytes=n_bytes)
