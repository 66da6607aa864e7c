"""Passes over the edges on the CPU, in C: a thread does all that a tile needs.

A step of a tile takes tens of microseconds, too few for threads to share it. So each thread takes a
group of tiles, with rooms of its own. Groups have sums over their edges of their own, too, and
neither their number nor any result depends on the number of threads.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from torch import Tensor

from pipeline_kernels.equivariant.so2 import cpu, tiles
from pipeline_kernels.equivariant.so2.cpu import find_address, find_strides
from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.operands import Source
from pipeline_kernels.equivariant.so2.tiles import Pass, Product
from pipeline_kernels.native import C_TYPES, Words, call_routine, pack
from pipeline_kernels.threads import choose_threads

PASS_BYTES = 2**24  # of gradients by operands that wait for the sums over edges of a row
MAX_GROUPS = 32  # of tiles with sums over edges of their own: as many threads have work
OF_EDGES, OF_THREAD, OF_PASS, OF_GROUP = range(4)  # as in passes.c
ALIGNMENT = 64  # bytes


Operand = tuple[int | None, int, int, int]
"""Address and strides of a matrix: `Operand` in passes.c."""


def go_over(work: Pass) -> None:
    """Go over all tiles, in threads where C does all that a tile needs."""
    if is_native(work.source):
        _NativeRun(work).go_over()
    else:
        tiles.go_over(work)


def is_native(source: Source) -> bool:
    """Test that passes run in C: features and products have one type, compiled there."""
    return source.kernels is cpu and source.dtype == source.tables[0].dtype in C_TYPES


def count_groups(source: Source, weights: Sequence[Tensor]) -> int:
    """Choose the number of groups of tiles: their sums are at most half as many as the operands."""
    if not is_native(source):
        return 1
    n_sums = max(1, sum(W.numel() for W in weights))
    n_tiles = -(-source.n_edges // source.tile_size)
    return max(1, min(MAX_GROUPS, n_tiles, _count_numbers(source) // (2 * n_sums)))


class _NativeRun:
    """A pass as C takes it.

    Args:
        work: the pass.

    Attributes:
        waiting: gradients by the operands of a part of the edges, of which some belong to rows that
            several edges take; none if there are no such rows.
    """

    def __init__(self, work: Pass) -> None:
        self.work, self.source = work, work.source
        self._rooms: dict[int, int] = {}  # where each begins in the memory of a thread, by address
        self._n_bytes = 0
        self.waiting: Tensor | None = None
        if work.gradient is not None and any(map(self._waits, range(len(work.by_tables)))):
            room = work.gradient
            n_bytes = max(1, room[0].numel() * room.element_size())
            size = max(self.source.tile_size, min(self.source.n_edges, PASS_BYTES // n_bytes))
            self.waiting = room.new_empty(size, *room.shape[1:])

    def go_over(self) -> None:
        """Go over the edges, as many at a time as the buffer of waiting gradients holds."""
        source, n_edges = self.source, self.source.n_edges
        if n_edges == 0:
            return
        lists = [
            pack(*chain.from_iterable(members))
            for members in (
                self._describe_tables(),
                [self._describe_sum(*pair) for pair in self.work.sums],
                [self._describe_product(product) for product in self.work.products],
            )
        ]
        fixed = self._describe(lists)
        n_bytes, n_threads = max(1, self._n_bytes), choose_threads(_count_numbers(source))
        library = cpu.load(source.layout, source.dtype)
        n_own_sums = next((len(p.out) for p in self.work.products if p.summed), 0)
        size = n_edges if self.waiting is None else len(self.waiting)
        for ends in zip(*(ends.cut_tiles(size, by_row=True) for ends in source.ends), strict=True):
            begin, end = ends[0].span
            n_groups = n_own_sums or -(-(end - begin) // source.tile_size)
            native = pack(*fixed, begin, end, source.tile_size, n_groups)
            call_routine(library, "go_over", native, n_threads=n_threads, n_bytes=n_bytes)
            self._lower(ends)

    def _lower(self, ends: Sequence[Ends]) -> None:
        """Add waiting gradients to the rows that several edges share."""
        source, first = self.source, 0
        if self.waiting is None:
            return
        assert source.frames is not None
        n_edges = ends[0].span[1] - ends[0].span[0]
        for t, n_channels in enumerate(source.channels):
            part = slice(first, first + n_channels)
            if self._waits(t):
                f = None if source.factors is None else source.factors[..., part]
                y = self.waiting[:n_edges, :, part]
                how = ends[t], source.layout, source.turned[t]
                cpu.lower(self.work.by_tables[t], y, source.frames, f, *how)
            first = part.stop

    def _waits(self, t: int) -> bool:
        """Test for a wanted gradient by a table with rows that several edges share."""
        return self.work.by_tables[t].numel() > 0 and self.source.ends[t].index is not None

    def _describe(self, lists: Sequence[Words]) -> tuple[Words | int | None, ...]:
        """Return `Pass` of passes.c but for what differs between parts of the edges."""
        work, source = self.work, self.source
        return (
            *lists,
            *map(find_address, (source.frames, source.factors, work.by_factors)),
            *(*self._place(work.operand), *self._place(work.gradient)),
            *(len(source.tables), len(work.sums), len(work.products)),
            *(work.operand is not None, work.gradient is not None),
        )

    def _describe_sum(self, features: Tensor, room: Tensor) -> tuple[int | None, ...]:
        """Return `Sum` of passes.c."""
        return *self._place(features), *self._place(room), features.shape[2]

    def _describe_tables(self) -> Iterator[tuple[int | None, ...]]:
        """Yield `Table` of passes.c for each table."""
        source, by_tables, first = self.source, self.work.by_tables, 0
        total = sum(source.channels)
        strides = source.layout.n_rows * total, total, *find_strides(source.factors)
        for t, (x, ends) in enumerate(zip(source.tables, source.ends, strict=True)):
            n, turned = x.shape[2], source.turned[t]
            own = find_address(ends.index), *[None] * 3, *[0] * 4, n, n - turned, *strides
            by_x = by_tables[t] if by_tables and not self._waits(t) else None
            yield *own, find_address(x), find_address(by_x), first
            first += n

    def _describe_product(self, product: Product) -> tuple[int | None, ...]:
        """Return `Step` of passes.c; -1 stands for the number of edges of a tile."""
        out, a, b = product.out, product.a, product.b
        start = out if product.summed else product.start
        assert out.stride(-1) == b.stride(1) == a.stride(1) == 1
        if product.summed:
            sums = find_address(out), 0, out.stride(0), OF_GROUP
            places = *self._place(a), *self._place(b), *sums, *sums
            sizes, steps = (a.shape[1], -1), (1, a.stride(0))
        else:
            weights = find_address(b), 0, 0, OF_EDGES
            places = *self._place(a), *weights, *self._place(start), *self._place(out)
            sizes, steps = (-1, a.shape[1]), (a.stride(0), 1)
        start_row = 0 if start is None else start.stride(-2)
        rows = *steps, b.stride(0), start_row, out.stride(-2)
        return *places, *sizes, out.shape[-1], *rows

    def _place(self, x: Tensor | None) -> Operand:
        """Return the address of rows: of all edges, of waiting edges, or in the workspace."""
        if x is None or x.numel() == 0:
            return None, 0, 0, OF_EDGES
        address, gradient = x.untyped_storage().data_ptr(), self.work.gradient
        start = (x.data_ptr() - address) // x.element_size()
        is_gradient = gradient is not None and gradient.untyped_storage().data_ptr() == address
        if is_gradient and self.waiting is not None:
            # Not the distance of x, which is arbitrary where a tile has one edge.
            distance = self.waiting.stride(0)
            return self.waiting.data_ptr(), start, distance, OF_PASS
        if len(x) == self.source.n_edges and not is_gradient:
            return x.data_ptr(), 0, x.stride(0), OF_EDGES
        if address not in self._rooms:
            self._rooms[address] = self._n_bytes // x.element_size()
            n_bytes = x.untyped_storage().nbytes()
            self._n_bytes += -(-n_bytes // ALIGNMENT) * ALIGNMENT
        return None, self._rooms[address] + start, 0, OF_THREAD


def _count_numbers(source: Source) -> int:
    """Count the numbers in the operands of all edges."""
    return source.n_edges * source.layout.n_rows * sum(source.channels)
