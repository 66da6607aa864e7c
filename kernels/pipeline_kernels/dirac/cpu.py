"""Hops on the CPU: C, with sub-lattices, then fields as lanes of vectors."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.dirac.geometry import ALL, How, Where, apply_signs
from pipeline_kernels.dirac.lanes import Lanes, make_lanes
from pipeline_kernels.threads import choose_threads

HALVES = 5  # of a lattice of spinors, in the memory of a routine


def load_library(n_colours: int, dimension: int, dtype: torch.dtype) -> ctypes.CDLL:
    """Load the library for a number of colours and a dimension.

    Raises:
        UnavailableError: if it cannot be loaded or compiled.
    """
    macros = {"N": str(n_colours), "REAL": native.C_TYPES[dtype], "D": str(dimension)}
    return native.load_library("dirac", **macros)


@lru_cache(maxsize=256)
def count_lanes(library: ctypes.CDLL) -> int:
    """Return the number of lanes of a vector."""
    return native.compute_size(library, "n_lanes")


class Plan(NamedTuple):
    """Sizes and layout of fields of one shape.

    Attributes:
        task: the argument of the routines: `Lattice` in lattice.c.
        lanes: sites of the lanes, whose tables it has.
        n_groups: vectors of configurations.
        n_units: vectors of fields.
        n_bytes: memory of a thread for `HALVES` of a unit.
    """

    task: native.Words
    lanes: Lanes
    n_groups: int
    n_units: int
    n_bytes: int


@lru_cache(maxsize=256)
def make_plan(library: ctypes.CDLL, extents: tuple[int, ...], batch: int, n_rhs: int) -> Plan:
    """Return the plan for fields `(batch, n_rhs, ...)`."""
    lanes = make_lanes(extents, count_lanes(library))
    tables = lanes.sites, lanes.neighbours, lanes.permutations
    task = native.pack(*tables, lanes.half, lanes.n_parts, batch, n_rhs)
    n_groups, n_units = (
        native.compute_size(library, name, task) for name in ("count_groups", "count_units")
    )
    n_bytes = native.compute_size(library, "memory_size", task, HALVES)
    return Plan(task, lanes, n_groups, n_units, n_bytes)


def pack_links(links: Tensor, extents: Sequence[int], boundary: Sequence[int]) -> Tensor | None:
    """Return links, with the signs of the boundary, in the order of the lanes.

    None where C has no part: on other devices than the CPU, or without a library.
    """
    if links.device.type != "cpu" or links.shape[0] == 0:
        return None
    try:
        library = load_library(links.shape[-1], len(extents), links.dtype)
    except native.UnavailableError:  # of which the user has been warned
        return None
    task, lanes, n_groups, _, _ = make_plan(library, tuple(extents), len(links), 1)
    signed = native.make_plain(apply_signs(links.detach(), extents, boundary))
    shape = n_groups, 2, lanes.half, len(extents), links[0, 0, 0].numel() * 2, count_lanes(library)
    packed = torch.empty(shape, dtype=links.real.dtype)
    n_threads = min(n_groups, choose_threads(packed.numel()))
    native.call_routine(library, "pack_links", signed, packed, task, n_threads=n_threads)
    return packed


def combine_hops(psi: Tensor, other: Tensor | None, links: Tensor, *how: *How) -> Tensor:
    """Implement `reference.combine_hops`."""
    packed, factors, extents, boundary, parity, adjoint = how
    plain = native.make_plain(psi)
    out = torch.empty_like(plain)
    if psi.numel() == 0:
        return out
    library = load_library(links.shape[-1], len(extents), links.dtype)
    if packed is None:
        packed = pack_links(links, extents, boundary)
    assert packed is not None
    batch, n_rhs = psi.shape[:2]
    task, _, _, n_units, n_bytes = make_plan(library, tuple(extents), batch, n_rhs)
    added = None if other is None else plain if other is psi else native.make_plain(other)
    native.call_routine(
        library,
        "combine_hops",
        plain,
        added,
        packed,
        out,
        task,
        native.pack(*map(float, factors)),
        parity,
        int(adjoint),
        n_threads=min(n_units, choose_threads(8 * out.numel())),
        n_bytes=n_bytes,
    )
    return out


def hop_gradient(chi: Tensor, psi: Tensor, *where: *Where) -> Tensor:
    """Implement `reference.hop_gradient`."""
    extents, boundary, parity, adjoint = where
    batch, n_rhs, n_sites, _, n = psi.shape
    shape = len(extents), n_sites if parity == ALL else 2 * n_sites, n, n
    if psi.numel() == 0:
        return psi.new_zeros(batch, *shape)
    library = load_library(n, len(extents), psi.dtype)
    task, lanes, n_groups, _, _ = make_plan(library, tuple(extents), batch, n_rhs)
    copies = count_lanes(library) // lanes.n_parts if batch == 1 else batch
    out = torch.empty(copies, *shape, dtype=psi.dtype)
    native.call_routine(
        library,
        "hop_gradient",
        native.make_plain(chi),
        native.make_plain(psi),
        out,
        task,
        parity,
        int(adjoint),
        n_threads=min(n_groups, choose_threads(8 * psi.numel())),
        n_bytes=native.compute_size(library, "gradient_size", task),
    )
    if copies != batch:
        out = out.sum(0, keepdim=True)
    return apply_signs(out, extents, boundary)
