"""Checks and shapes of complex matrices of two or three colours."""

from collections.abc import Callable

from torch import Tensor

from pipeline_kernels.checks import COMPLEX


def check_matrices(name: str, U: Tensor) -> None:
    """Raise `ValueError` unless matrices are complex and square with 2 or 3 rows.

    Args:
        name: of the argument, for the message.
        U: the argument.

    Raises:
        ValueError: if so.
    """
    if U.dtype not in COMPLEX:
        raise ValueError(f"{name}: expected one dtype of {COMPLEX}, got {U.dtype}")
    if U.ndim < 2 or U.shape[-2:] not in {(2, 2), (3, 3)}:
        raise ValueError(f"{name}: expected (..., N, N) with N = 2 or 3, got {tuple(U.shape)}")


def apply_flat(operator: Callable[..., Tensor], U: Tensor, *others: object) -> Tensor:
    """Apply an operator of matrices `(n, N, N)` to matrices `(..., N, N)`.

    Where there is one dimension before they are taken as they are: views take time, and again when
    they are differentiated.
    """
    if U.ndim == 3:
        return operator(U, *others)
    result = operator(U.reshape(-1, *U.shape[-2:]), *others)
    return result.reshape(*U.shape[:-2], *result.shape[1:])


def conjugate_transpose(M: Tensor) -> Tensor:
    """Return `M^dagger`, conjugated at once: inside an operator torch may drop it when pending."""
    return M.mT.conj_physical()


def make_like(first: Tensor, *others: object) -> Tensor:
    """Return an empty tensor like the first argument."""
    return first.new_empty(first.shape)
