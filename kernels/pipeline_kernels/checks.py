"""Checks of arguments, before any kernel runs."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

REAL: Final = (torch.float32, torch.float64)
FLOATING: Final = (*REAL, torch.float16, torch.bfloat16)
COMPLEX: Final = (torch.complex64, torch.complex128)


def check_tensor(
    name: str,
    x: Tensor,
    shape: Sequence[int | str],
    dtypes: Sequence[torch.dtype] = REAL,
    device: torch.device | None = None,
) -> None:
    """Refuse a tensor of another shape, type or device.

    Args:
        name: of the argument, for the message.
        x: the argument.
        shape: its sizes; a name stands for any number.
        dtypes: types that it may have.
        device: where it must be; anywhere if not given.

    Raises:
        ValueError: if so.
    """
    is_of_kind = x.dtype in dtypes and (device is None or x.device == device)
    if is_of_kind and (x.shape == shape or _match(x.shape, shape)):
        return
    sizes = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
    place = "" if device is None else f" on {device}"
    raise ValueError(
        f"{name}: expected ({sizes}) of {' or '.join(map(str, dtypes))}{place}, got "
        f"{tuple(x.shape)} of {x.dtype} on {x.device}"
    )


def _match(sizes: Sequence[int], shape: Sequence[int | str]) -> bool:
    return len(sizes) == len(shape) and all(
        isinstance(n, str) or n == size for n, size in zip(shape, sizes, strict=True)
    )
