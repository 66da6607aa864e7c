"""Batches: a plain dict of flat tensors.

Besides its fields a batch holds, for each ragged kind, `<kind>_offsets` (n_samples + 1,) and
`<kind>_sample` (n_rows,), the sample that each row belongs to. Free functions instead of a class,
so that a batch goes through DDP, autocast and torch.compile like any other dict.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_core.fields import FIELDS, RAGGED, Field

Batch = dict[str, Tensor]


def collate(
    samples: Sequence[Mapping[str, NDArray[Any]]],
    dtype: torch.dtype,
    fields: Mapping[str, Field] = FIELDS,
) -> Batch:
    """Collate samples into one batch, shifting row numbers.

    Args:
        samples: At least one sample: field name to array `(n_rows, *shape)`. Text fields are left
            out.
        dtype: Type of all floating-point tensors except exact fields; complex ones get the complex
            type of its width.
        fields: Fields by name; a plugin with fields of its own passes them together with the shared
            ones.

    Returns:
        The batch, on the CPU.
    """
    names = [n for n in samples[0] if fields[n].dtype != "str"]
    batch: Batch = {}
    offsets: dict[str, NDArray[np.int64]] = {}
    for kind in RAGGED:
        members = [n for n in names if fields[n].kind == kind]
        if members:
            counts = [len(sample[members[0]]) for sample in samples]
            offsets[kind] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            batch[f"{kind}_offsets"] = torch.from_numpy(offsets[kind])
            batch[f"{kind}_sample"] = torch.from_numpy(np.repeat(np.arange(len(samples)), counts))
    for name in names:
        batch[name] = _collate_column(
            name, [sample[name] for sample in samples], fields[name], offsets, dtype
        )
    return batch


def _collate_column(
    name: str,
    parts: Sequence[NDArray[Any]],
    field: Field,
    offsets: Mapping[str, NDArray[np.int64]],
    dtype: torch.dtype,
) -> Tensor:
    if field.kind == "sample":
        rows = np.stack(parts)
    elif field.indexes is None:
        rows = np.concatenate(parts)
    else:
        assert field.indexes in offsets, (
            f"{name} numbers rows of {field.indexes}, which the batch lacks"
        )
        starts = offsets[field.indexes]
        rows = np.concatenate([p.astype(np.int64) + s for p, s in zip(parts, starts, strict=False)])
    tensor = torch.from_numpy(np.ascontiguousarray(rows))
    wanted = torch.float64 if field.exact else dtype
    if tensor.is_floating_point():
        return tensor.to(wanted)
    if tensor.is_complex():
        return tensor.to(wanted.to_complex())
    return tensor if tensor.dtype == torch.bool else tensor.long()


def move_to_device(batch: Batch, device: torch.device) -> Batch:
    """Move a batch; from pinned memory the copy overlaps with computation."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def count_samples(batch: Batch) -> int:
    """Return the number of samples in a batch."""
    for kind in RAGGED:
        if f"{kind}_offsets" in batch:
            return len(batch[f"{kind}_offsets"]) - 1
    return len(next(iter(batch.values())))
