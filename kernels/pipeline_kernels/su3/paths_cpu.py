"""Products along paths on the CPU: C where there is a compiler, numba elsewhere."""

import ctypes
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from pipeline_kernels.su3 import fields
from pipeline_kernels.su3 import paths_loops as loops
from pipeline_kernels.threads import choose_threads

SIZES = ("batch", "n_links", "length", "n_places", "n_paths")


class Paths(ctypes.Structure):
    """What to calculate: `Paths` in paths.c."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("adjoint", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in SIZES),
    )


def path_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Implements `reference.path_products`."""
    out = links.new_empty(links.shape[0], *table.shape[1:], *links.shape[2:])
    _run("path_products", links, [out], table, adjoint)
    return out


def path_gradient(links: Tensor, G: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Implements `reference.path_gradient`."""
    by_links = links.new_empty(links.shape)
    _run("path_gradient", links, [G, by_links], table, adjoint)
    return by_links


@cache
def _library(n_colours: int, dtype: torch.dtype) -> ctypes.CDLL | None:
    return fields.load("paths", {"path_products": 5, "path_gradient": 6}, n_colours, dtype)


def _run(
    name: str, links: Tensor, others: Sequence[Tensor], table: Tensor, adjoint: Tensor
) -> None:
    arrays = fields.plain((links, *others))
    if links.numel() == 0:
        return
    table, adjoint = table.contiguous(), adjoint.contiguous()
    if table.numel() and not 0 <= int(table.min()) <= int(table.max()) < links.shape[1]:
        raise ValueError(f"table: expected numbers of {links.shape[1]} links, got others")
    threads = choose_threads(len(links) * table.numel() * links.shape[-1] ** 2)
    library = _library(links.shape[-1], links.dtype)
    if library is None:
        getattr(loops, name)(arrays, table, adjoint, threads)
        return
    sizes = len(links), links.shape[1], *table.shape
    paths = Paths(table.data_ptr(), adjoint.data_ptr(), *sizes)
    fields.run(library, name, arrays, paths, threads, is_gradient=len(others) > 1)
