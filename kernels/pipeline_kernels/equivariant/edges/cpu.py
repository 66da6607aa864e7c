"""The edges on the CPU, in C. Edges are independent: no result depends on the threads."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels.equivariant.edges.reference import EdgeMeasures, find_slopes
from pipeline_kernels.equivariant.harmonics import compute_harmonic_norms
from pipeline_kernels.hermite import Places
from pipeline_kernels.native import call_routine, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads

WORK = 20  # numbers read or written for a number of an edge, for the choice of threads
READ = ("vectors", "by_harmonics", "by_x")
WRITTEN = (
    *("directions", "distance", "harmonics"),
    *("first", "factors", "factor_slopes", "by_vectors"),
)


def measure(vectors: Tensor, lmax: int, scale: float, n_intervals: int) -> EdgeMeasures:
    """Implement `reference.measure`."""
    n, vectors = len(vectors), make_plain(vectors.detach())
    directions, distance = torch.empty_like(vectors), vectors.new_empty(n)
    harmonics, first = (
        vectors.new_empty(n, (lmax + 1) ** 2),
        distance.new_empty(n, dtype=torch.int64),
    )
    places = Places(first, vectors.new_empty(n, 6), vectors.new_empty(n, 6))
    arrays = {"vectors": vectors, "directions": directions, "distance": distance}
    arrays |= {"harmonics": harmonics, "first": first}
    arrays |= {"factors": places.factors, "factor_slopes": places.slopes}
    _run("measure", arrays, lmax, scale, n_intervals)
    return EdgeMeasures(directions, distance, harmonics, places)


def differentiate(
    edges: EdgeMeasures, by_harmonics: Tensor, by_x: Tensor, lmax: int, scale: float
) -> Tensor:
    """Implement `reference.differentiate`."""
    result = torch.empty_like(edges.directions)
    arrays = {"by_harmonics": make_plain(by_harmonics), "by_x": make_plain(by_x)}
    arrays |= {name: getattr(edges, name) for name in ("directions", "distance", "harmonics")}
    _run("differentiate", arrays | {"by_vectors": result}, lmax, scale)
    return result


def _run(
    name: str, arrays: dict[str, Tensor], lmax: int, scale: float, n_intervals: int = 0
) -> None:
    harmonics = arrays["harmonics"]
    library = load_library("edges", harmonics.dtype)
    constants = _list_constants(lmax)
    read, written = (map(arrays.get, names) for names in (READ, WRITTEN))
    sizes = len(harmonics), lmax, n_intervals, len(constants[2])
    work = pack(*read, *constants, *written, *sizes, float(scale))
    call_routine(library, name, work, n_threads=choose_threads(WORK * harmonics.numel()))


@cache
def _list_constants(lmax: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return norms of harmonics, and the entries of their slopes: values; axes, rows, columns."""
    D = find_slopes(lmax).numpy()
    terms = np.argwhere(D)
    norms = np.ascontiguousarray(compute_harmonic_norms(lmax))
    return norms, D[tuple(terms.T)].copy(), np.ascontiguousarray(terms, np.int64)
