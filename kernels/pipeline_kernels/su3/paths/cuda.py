"""Products along paths on NVIDIA GPUs: one path of some samples in a program.

The derivative gathers for each link what all paths over it give, so that no two programs write to
one place.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.su3.matrices_cuda import add_scaled, multiply, select
from pipeline_kernels.su3.matrices_cuda import adjoint as adjoint_of

BLOCK = 64  # matrices of a program


def path_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Implement `reference.path_products`."""
    out = links.new_empty(links.shape[0], *table.shape[1:], *links.shape[2:])
    if out.numel():
        n_products = table.shape[1] * table.shape[2]
        arrays = _view_numbers(links), torch.view_as_real(out)
        _launch(_multiply_path, n_products, arrays, links, _make_plan(table, adjoint))
    return out


def path_gradient(links: Tensor, G: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Implement `reference.path_gradient`."""
    out = links.new_empty(links.shape)
    if out.numel():
        # Where each link is used, in the order of links.
        numbers, uses = table.flatten().sort(stable=True)
        starts = torch.searchsorted(numbers, torch.arange(links.shape[1] + 1, device=links.device))
        arrays = _view_numbers(links), _view_numbers(G), torch.view_as_real(out)
        plan = (*_make_plan(table, adjoint), uses, starts)
        _launch(_differentiate_link, links.shape[1], arrays, links, plan)
    return out


def _make_plan(table: Tensor, adjoint: Tensor) -> tuple[Tensor, Tensor]:
    return table.contiguous(), adjoint.to(torch.int8).contiguous()


def _launch(
    kernel: triton.JITFunction,
    n_programs: int,
    arrays: tuple[Tensor, ...],
    links: Tensor,
    plan: tuple[Tensor, ...],
) -> None:
    """Run `n_programs` programs for each block of samples."""
    length, n_places, n_paths = plan[0].shape
    total, n_links, n_colours, _ = links.shape
    sizes = total, n_links, n_places * n_paths, n_paths
    with torch.cuda.device_of(links):
        kernel[(n_programs, triton.cdiv(total, BLOCK))](
            *arrays, plan, sizes, length, n_colours, BLOCK
        )


def _view_numbers(matrices: Tensor) -> Tensor:
    return torch.view_as_real(matrices.resolve_conj().contiguous())


@triton.jit
def _multiply_path(
    links, out, plan, sizes, LENGTH: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr
):
    path = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    product = _load_step(links, plan, sizes, row, 0, path, N)
    for i in tl.static_range(1, LENGTH):
        product = multiply(product, _load_step(links, plan, sizes, row, i, path, N))
    _store(out, row * sizes[2] + path, product, row < sizes[0])


@triton.jit
def _differentiate_link(
    links, by, out, plan, sizes, LENGTH: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr
):
    link = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total, n_links, n_products, n_paths = sizes
    sum_of = _load(by, row, row < 0, N)  # zero
    for use in range(tl.load(plan[3] + link), tl.load(plan[3] + link + 1)):
        place = tl.load(plan[2] + use)
        position, path = place // n_products, place % n_products
        g = _load(by, row * n_products + path, row < total, N)
        # g F_l^dagger ... F_{i+1}^dagger from the right, then F_{i-1}^dagger ... from the left
        for j in tl.static_range(1, LENGTH):
            f = _load_step(links, plan, sizes, row, LENGTH - j, path, N)
            g = select(LENGTH - j > position, multiply(g, adjoint_of(f)), g)
        for j in tl.static_range(LENGTH - 1):
            f = _load_step(links, plan, sizes, row, j, path, N)
            g = select(j < position, multiply(adjoint_of(f), g), g)
        backwards = tl.load(plan[1] + position * n_paths + path % n_paths) != 0
        sum_of = add_scaled(sum_of, select(backwards, adjoint_of(g), g), 1.0)
    _store(out, row * n_links + link, sum_of, row < total)


@triton.jit
def _load_step(links, plan, sizes, row, position, path, N: tl.constexpr):
    """Load a factor of a path: a link, or its adjoint where it is passed backwards."""
    total, n_links, n_products, n_paths = sizes
    number = tl.load(plan[0] + position * n_products + path)
    backwards = tl.load(plan[1] + position * n_paths + path % n_paths) != 0
    factor = _load(links, row * n_links + number, row < total, N)
    return select(backwards, adjoint_of(factor), factor)


@triton.jit
def _load(source, rows, kept, N: tl.constexpr):
    out = ()
    for i in tl.static_range(2 * N * N):
        out = out + (tl.load(source + rows * (2 * N * N) + i, kept, 0.0),)  # noqa: RUF005
    return out


@triton.jit
def _store(target, rows, a, kept):
    for i in tl.static_range(len(a)):
        tl.store(target + rows * len(a) + i, a[i], kept)
