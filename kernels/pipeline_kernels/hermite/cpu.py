"""Splines on the CPU, in C. Numbers are independent: no result depends on the threads."""

from collections.abc import Sequence
from typing import Final

from torch import Tensor

from pipeline_kernels.hermite.places import N_ROWS
from pipeline_kernels.native import call_routine, load_library, make_plain, pack
from pipeline_kernels.threads import choose_threads

WORK: Final = 2 * N_ROWS
"""Numbers read for one of a result, for the choice of threads."""


def interpolate(x: Tensor, table: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Implement `reference.interpolate`."""
    results = [table.new_empty(len(x), width) for width in widths]
    _run("interpolate", x, table, results)
    return results


def differentiate(gradients: Sequence[Tensor], x: Tensor, table: Tensor) -> Tensor:
    """Implement `reference.differentiate`."""
    by_x = x.new_empty(len(x))
    _run("differentiate", x, table, [make_plain(g) for g in gradients], by_x)
    return by_x


def _run(
    name: str, x: Tensor, table: Tensor, groups: Sequence[Tensor], by_x: Tensor | None = None
) -> None:
    library = load_library("hermite", table.dtype)
    x, table = make_plain(x), make_plain(table)
    lists = pack(*groups), pack(*(group.shape[1] for group in groups))
    sizes = len(groups), len(x), table.shape[1], len(table) // N_ROWS - 1
    splines = pack(x, table, by_x, *lists, *sizes)
    n_threads = choose_threads(WORK * len(x) * table.shape[1])
    call_routine(library, name, splines, n_threads=n_threads)
