"""Products along paths on the CPU: C, with places as lanes of vectors."""

from collections.abc import Sequence

from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.su3 import lanes
from pipeline_kernels.threads import choose_threads


def path_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Implement `reference.path_products`, and check the table for it and its derivative."""
    if table.numel():
        least, largest = table.aminmax()
        if int(least) < 0 or int(largest) >= links.shape[1]:
            raise ValueError(f"table: expected numbers of {links.shape[1]} links, got others")
    out = links.new_empty(links.shape[0], *table.shape[1:], *links.shape[2:])
    _run("path_products", links, [out], table, adjoint)
    return out


def path_gradient(links: Tensor, G: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Implement `reference.path_gradient`."""
    by_links = links.new_empty(links.shape)
    _run("path_gradient", links, [G, by_links], table, adjoint)
    return by_links


def _run(
    name: str, links: Tensor, others: Sequence[Tensor], table: Tensor, adjoint: Tensor
) -> None:
    if links.numel() == 0:
        return
    library = lanes.load_for_places("paths", links, table.shape[1])
    table, adjoint = table.contiguous(), adjoint.contiguous()
    task = native.pack(table, adjoint, *links.shape[:2], *table.shape)
    n_threads = choose_threads(len(links) * table.numel() * links.shape[-1] ** 2)
    native.call_routine(
        library,
        name,
        *map(native.make_plain, (links, *others)),
        task,
        n_threads=min(len(links), n_threads),
        n_bytes=native.compute_size(library, "memory_size", task),
    )
