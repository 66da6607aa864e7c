"""The algebra su(N) as a real vector space, and its linear maps, in Triton.

Maps are blocks `(links, R, R)`, with zeros, or the unit matrix, beyond the N^2 - 1 dimensions;
matrices are tuples, see `matrices_cuda`.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from pipeline_kernels.su3 import matrices_cuda as mat
from pipeline_kernels.su3.residual.reference import make_basis, make_product_table


@triton.constexpr_function
def count_rows(n_colours):
    """Return R: N^2 - 1, or the power of two beyond."""
    return 4 if n_colours == 2 else 8


class Tables(NamedTuple):
    """The basis of the algebra as kernels read it.

    Attributes:
        basis: Parts of T_a, `(N^2, 2, R)`.
        products: Parts of T_a T_b, `(N^2, 2, R, R)`.
    """

    basis: Tensor
    products: Tensor


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def make_tables(n_colours: int, device: torch.device) -> Tables:
    """Return the tables for N colours."""
    rows, n = count_rows(n_colours), n_colours**2 - 1
    basis = torch.view_as_real(make_basis(n_colours, device).flatten(1).T)  # (N^2, n, 2)
    products = torch.view_as_real(make_product_table(n_colours, device)).unflatten(1, (n, n))
    return Tables(
        pad(basis.mT, (0, rows - n)).contiguous(),
        pad(products.permute(0, 3, 1, 2), (0, rows - n, 0, rows - n)).contiguous(),
    )


@triton.jit
def spread(x):
    """Return one number a link as maps."""
    return x[:, None, None]


@triton.jit
def make_unit(R: tl.constexpr):
    """Return the unit matrix, `(R, R)`."""
    rows = tl.arange(0, R)
    return tl.where(rows[:, None] == rows[None, :], 1.0, 0.0).to(tl.float64)


@triton.jit
def transpose(x):
    """Return the transposed maps."""
    return tl.permute(x, (0, 2, 1))


@triton.jit
def multiply_maps(x, y):
    """Return products of maps."""
    return tl.sum(x[:, :, :, None] * y[:, None, :, :], 2)


@triton.jit
def sum_products(x, y):
    """Return the sums of the products of all numbers of two maps."""
    return tl.sum(tl.sum(x * y, 2), 1)


@triton.jit
def invert(x):
    """Return inverses and determinants, by Jordan's elimination."""
    R: tl.constexpr = x.shape[1]
    rows = tl.arange(0, R)
    product = tl.sum(tl.sum(tl.zeros_like(x), 2), 1) + 1
    for k in range(R):
        here = rows == k
        line = tl.sum(tl.where(here[None, :, None], x, 0.0), 1)
        column = tl.sum(tl.where(here[None, None, :], x, 0.0), 2)
        pivot = tl.sum(tl.where(here[None, :], line, 0.0), 1)
        product *= pivot
        line = tl.where(here[None, :], 1.0, line) / pivot[:, None]
        others = tl.where(here[None, None, :], 0.0, x) - column[:, :, None] * line[:, None, :]
        x = tl.where(here[None, :, None], line[:, None, :], others)
    return x, product


@triton.jit
def compute_left_product(a, products, R: tl.constexpr):
    """Return the maps x -> part of x a in the algebra."""
    N: tl.constexpr = mat.count_colours(len(a))
    place = tl.arange(0, R)[:, None] * R + tl.arange(0, R)[None, :]
    out = tl.zeros_like(a[0])[:, None, None]
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            entry = products + 2 * (N * i + j) * R * R + place
            re, im = mat.get_entry(a, j, i)
            out = out - spread(re) * tl.load(entry)[None, :, :]
            out += spread(im) * tl.load(entry + R * R)[None, :, :]
    return out


@triton.jit
def pull_left_product(by, products, LENGTH: tl.constexpr):
    """Return the derivative by the matrices of the maps, each of `LENGTH` numbers."""
    N: tl.constexpr = mat.count_colours(LENGTH)
    R: tl.constexpr = by.shape[1]
    place = tl.arange(0, R)[:, None] * R + tl.arange(0, R)[None, :]
    out = ()
    for j in tl.static_range(N):
        for i in tl.static_range(N):
            entry = products + 2 * (N * i + j) * R * R + place
            re = -sum_products(by, tl.load(entry)[None, :, :])
            out = out + (re, sum_products(by, tl.load(entry + R * R)[None, :, :]))  # noqa: RUF005
    return out


@triton.jit
def compute_components(a, basis, R: tl.constexpr):
    """Return the components, `(links, R)`, of the parts of matrices in the algebra."""
    rows = tl.arange(0, R)
    out = tl.zeros_like(a[0])[:, None]
    for i in tl.static_range(len(a)):
        out = out + a[i][:, None] * tl.load(basis + i * R + rows)[None, :]
    return out


@triton.jit
def make_element(x, basis, N: tl.constexpr, R: tl.constexpr):
    """Return the matrices with components x, `(links, R)`."""
    rows = tl.arange(0, R)
    out = ()
    for i in tl.static_range(2 * N * N):
        out = out + (tl.sum(x * tl.load(basis + i * R + rows)[None, :], 1),)  # noqa: RUF005
    return out
