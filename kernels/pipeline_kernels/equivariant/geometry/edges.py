"""Geometry of edges in C, or in PyTorch where there is no library."""

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_kernels.equivariant.harmonics import compute_harmonic_norms, solid_harmonics
from pipeline_kernels.equivariant.tensor_product.interpolated import HERMITE, Places
from pipeline_kernels.native import (
    C_TYPES,
    UnavailableError,
    call_routine,
    compute_size,
    load_library,
    make_plain,
)
from pipeline_kernels.threads import choose_threads

WORK = 100
"""Numbers read and written for an edge, for the choice of threads."""


class Knots(NamedTuple):
    """Knots of splines, and the highest degree of harmonics."""

    n_intervals: int
    cutoff: float
    lmax: int


class Geometry(NamedTuple):
    """What a network sees of its edges.

    Attributes:
        directions: from sender to receiver, `(n_edges, 3)`.
        distances: `(n_edges,)`, Å.
        harmonics: `(n_edges, (lmax + 1)²)`, in the order of e3nn.
        places: where distances lie between knots.
    """

    directions: Tensor
    distances: Tensor
    harmonics: Tensor
    places: Places


class _Basis(ctypes.Structure):
    """`Basis` in native.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("norms", "hermite", "scale", "terms", "values")),
        *((name, ctypes.c_int64) for name in ("lmax", "n_intervals", "n_terms", "n_edges")),
    )


def measure(vectors: Tensor, knots: Knots) -> Geometry:
    """Measure edges.

    Args:
        vectors: from receiver to sender, `(n_edges, 3)` Å, float32 or float64, none of them zero.
        knots: of the splines.
    """
    try:
        return _measure_in_c(vectors, knots)
    except UnavailableError:
        pass
    distances = torch.linalg.vector_norm(vectors, dim=1)
    directions = vectors / -distances[:, None]
    harmonics = _compute_harmonics(directions, knots.lmax)
    places = Places.of(distances * (knots.n_intervals / knots.cutoff), knots.n_intervals)
    return Geometry(directions, distances, harmonics, places)


def reverse(geometry: Geometry, by_harmonics: Tensor, by_places: Tensor, knots: Knots) -> Tensor:
    """Return derivatives by the vectors of edges, `(n_edges, 3)`.

    Args:
        geometry: from `measure`.
        by_harmonics: derivatives by harmonics.
        by_places: derivatives by x, `(n_edges,)`.
        knots: as those of `measure`.
    """
    try:
        return _reverse_in_c(geometry, by_harmonics, by_places, knots)
    except UnavailableError:
        pass
    directions, distances, harmonics, _ = geometry
    derivatives = torch.from_numpy(differentiate_harmonics(knots.lmax)).to(harmonics)
    by_directions = torch.stack(
        [((by_harmonics @ D) * harmonics).sum(1) for D in derivatives], dim=1
    )
    radial = by_places * (-knots.n_intervals / knots.cutoff)
    across = by_directions - (by_directions * directions).sum(1, keepdim=True) * directions
    return radial[:, None] * directions - across / distances[:, None]


@cache
def differentiate_harmonics(lmax: int) -> NDArray[np.float64]:
    """Return D such that dY_a / du_k = sum_b D[k, a, b] Y_b, `(3, n, n)`.

    What the coefficients are is solved for at random points.
    """
    with torch.inference_mode(False), torch.enable_grad():
        generator = torch.Generator().manual_seed(0)
        points = torch.randn(64, 3, dtype=torch.float64, generator=generator)
        points.requires_grad_()
        values = _compute_harmonics(points, lmax)
        rows = [
            torch.autograd.grad(column.sum(), points, retain_graph=True, materialize_grads=True)[0]
            for column in values[:, 1:].unbind(1)
        ]
    slopes = torch.stack([torch.zeros_like(points), *rows], dim=1)  # (64, n, 3)
    solution = torch.linalg.lstsq(values.detach(), slopes.detach().flatten(1)).solution
    n = values.shape[1]
    derivatives: NDArray[np.float64] = solution.view(n, n, 3).permute(2, 1, 0).numpy()
    return np.ascontiguousarray(np.where(abs(derivatives) > 1e-9, derivatives, 0))


def _compute_harmonics(directions: Tensor, lmax: int) -> Tensor:
    """Return harmonics in the order of e3nn, whose axis is y."""
    return solid_harmonics(directions.roll(1, dims=1), lmax)


def _measure_in_c(vectors: Tensor, knots: Knots) -> Geometry:
    basis, library = _make_basis(vectors, knots)
    vectors, n, dim = make_plain(vectors), len(vectors), (knots.lmax + 1) ** 2
    sizes = (n, 3), (n,), (n, dim)
    directions, distances, harmonics = (vectors.new_empty(size) for size in sizes)
    first = torch.empty(n, dtype=torch.int64)
    factors, slopes = (vectors.new_empty(n, 6) for _ in range(2))
    results = [directions, distances, harmonics, first, factors, slopes]
    _run("measure", library, basis, [vectors, *results])
    return Geometry(directions, distances, harmonics, Places(first, factors, slopes))


def _reverse_in_c(
    geometry: Geometry, by_harmonics: Tensor, by_places: Tensor, knots: Knots
) -> Tensor:
    basis, library = _make_basis(by_harmonics, knots)
    directions, distances, harmonics, _ = geometry
    result = torch.empty_like(directions)
    operands = [directions, distances, harmonics, make_plain(by_harmonics), make_plain(by_places)]
    _run("reverse", library, basis, [*operands, result])
    return result


def _run(name: str, library: ctypes.CDLL, basis: _Basis, arrays: list[Tensor]) -> None:
    if basis.n_edges:
        n_bytes, n_threads = compute_size(library, "memory_size", basis), WORK * basis.n_edges
        call_routine(
            library, name, basis, *arrays, n_threads=choose_threads(n_threads), n_bytes=n_bytes
        )


def _make_basis(like: Tensor, knots: Knots) -> tuple[_Basis, ctypes.CDLL]:
    """Return what routines read for so many edges, and their library.

    Raises:
        UnavailableError: there is none, or the edges are not on the CPU.
    """
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        raise UnavailableError(f"{like.dtype} on {like.device}")
    library = load_library("edge_geometry", REAL=C_TYPES[like.dtype])
    arrays = _list_constants(knots, like.dtype)
    pointers = (x.ctypes.data for x in arrays)
    return _Basis(*pointers, knots.lmax, knots.n_intervals, len(arrays[3]), len(like)), library


@cache
def _list_constants(knots: Knots, dtype: torch.dtype) -> tuple[NDArray[np.generic], ...]:
    """Return norms, Hermite polynomials, the scale, places of D's numbers, and these."""
    derivatives = differentiate_harmonics(knots.lmax)
    terms = np.argwhere(derivatives)
    real = np.float32 if dtype == torch.float32 else np.float64
    return (
        compute_harmonic_norms(knots.lmax).astype(real),
        HERMITE.numpy().astype(real),
        np.array([knots.n_intervals / knots.cutoff], real),
        terms.astype(np.int64),
        derivatives[tuple(terms.T)].astype(real),
    )
