"""Message passing in plain PyTorch, the oracle of the fast implementations."""

from collections.abc import Sequence

from torch import Tensor


def gather_sum(tables: Sequence[Tensor], indices: Sequence[Tensor]) -> Tensor:
    """Return `h_e = sum_t tables[t][indices[t][e]]`, shape `(n_elements, *features)`."""
    first, *others = (
        table.index_select(0, index) for table, index in zip(tables, indices, strict=True)
    )
    return sum(others, start=first)


def segment_sum(values: Tensor, index: Tensor, n_segments: int) -> Tensor:
    """Return `out_s = sum of values[e] over e with index[e] == s`, `(n_segments, *features)`."""
    return values.new_zeros(n_segments, *values.shape[1:]).index_add(0, index, values)
