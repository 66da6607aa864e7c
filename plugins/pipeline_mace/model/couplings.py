"""Conversion of product weights to another basis of the couplings.

A product of commuting factors is a polynomial. Two sets of couplings that span the same polynomials
describe the same products, with weights that are linear in each other.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pipeline_kernels.equivariant.contraction import Block, Polynomial, basis

Floats = NDArray[np.float64]
Monomials = tuple[NDArray[np.int64], Floats]
"""Rows (output, factors), and the coefficient of each for each coupling."""

_CLOSE = 1e-6
"""Largest difference of coefficients that are equal in single precision."""
_RANK = 1e-5
"""Singular values, over the largest, below which couplings depend on each other."""


def map_to_ours(polynomial: Polynomial, block: Block, tensor: Tensor) -> Floats | None:
    """Return the matrix that turns weights for couplings of mace-torch into ours.

    Args:
        polynomial: Our products.
        block: Products of one output with one number of factors.
        tensor: Their `U_matrix_*` in mace-torch, ([2 l + 1,] n_inputs, ..., n_inputs, n_theirs),
            without the first axis for l = 0.

    Returns:
        (n_ours, n_theirs); None if the couplings are the same.

    Raises:
        ValueError: The couplings span other products than ours.
    """
    if _is_same(polynomial, block, tensor):
        return None
    return _change(_expand_theirs(polynomial, block, tensor), _expand_ours(polynomial, block))


def map_to_theirs(polynomial: Polynomial, block: Block) -> Floats | None:
    """Return the matrix that turns our weights into those for all couplings, (n_all, n_ours).

    mace-torch has all couplings without `use_reduced_cg`. None if ours are the same.
    """
    if not polynomial.independent:
        return None
    return _change(
        _expand_ours(polynomial, block), basis.collect_terms(_list_all(polynomial, block))
    )


def _list_all(polynomial: Polynomial, block: Block) -> Floats:
    couplings: Floats = basis.compute_couplings(polynomial.irreps_in, block.irrep, block.degree)
    return couplings


def _is_same(polynomial: Polynomial, block: Block, tensor: Tensor) -> bool:
    if polynomial.independent or tensor.shape[-1] != block.n_weights:
        return False
    theirs = _reshape(polynomial, block, tensor)
    return bool(np.allclose(_list_all(polynomial, block), theirs, rtol=0, atol=_CLOSE))


def _reshape(polynomial: Polynomial, block: Block, tensor: Tensor) -> Floats:
    shape = (block.irrep.dim, *(polynomial.n_inputs,) * block.degree)
    if tensor.numel() != np.prod(shape, dtype=int) * tensor.shape[-1]:
        raise ValueError(
            f"the couplings of {block.degree} factors to {block.irrep} have the shape "
            f"{tuple(tensor.shape)}; expected {shape} and an axis of couplings"
        )
    theirs: Floats = tensor.detach().cpu().double().numpy().reshape(*shape, tensor.shape[-1])
    return theirs


def _expand_theirs(polynomial: Polynomial, block: Block, tensor: Tensor) -> Monomials:
    return basis.collect_terms(_reshape(polynomial, block, tensor))


def _expand_ours(polynomial: Polynomial, block: Block) -> Monomials:
    monomials, values = basis.collect_terms(_list_all(polynomial, block))
    return monomials, basis.orthonormalize(values) if polynomial.independent else values


def _change(before: Monomials, after: Monomials) -> Floats:
    """Return the matrix M with values_after M = values_before, (n_after, n_before)."""
    rows = np.concatenate([before[0], after[0]])
    monomial = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    size = monomial.max(initial=-1) + 1
    dense = [np.zeros((size, values.shape[1])) for _, values in (before, after)]
    dense[0][monomial[: len(before[0])]] = before[1]
    dense[1][monomial[len(before[0]) :]] = after[1]
    matrix: Floats = np.linalg.pinv(dense[1], rcond=_RANK) @ dense[0]
    if not np.allclose(dense[1] @ matrix, dense[0], rtol=0, atol=10 * _CLOSE):
        raise ValueError("the couplings span other products than ours")
    return matrix
