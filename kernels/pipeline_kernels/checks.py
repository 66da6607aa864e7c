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
    made: str = "",
) -> None:
    """Refuse a tensor of another shape, type or device.

    Args:
        name: of the argument, for the message.
        x: the argument.
        shape: its sizes; a name stands for any number.
        dtypes: types that it may have.
        device: where it must be; anywhere if not given.
        made: where such a tensor comes from, for the message.

    Raises:
        ValueError: if so.
    """
    fits = x.dtype in dtypes and (device is None or x.device == device) and x.ndim == len(shape)
    if fits:
        for n, size in zip(shape, x.shape, strict=True):  # quicker than `all`: each call is here
            fits = fits and (n == size or isinstance(n, str))
    if fits:
        return
    sizes = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
    place = "" if device is None else f" on {device}"
    raise ValueError(
        f"{name}: expected ({sizes}) of {' or '.join(map(str, dtypes))}{place}"
        f"{made and ', '}{made}, got {tuple(x.shape)} of {x.dtype} on {x.device}"
    )
