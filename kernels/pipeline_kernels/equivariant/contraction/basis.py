"""The couplings of equal inputs to one representation, and the polynomials that they are."""

from collections.abc import Sequence

import numpy as np

from pipeline_kernels.equivariant.clebsch_gordan import Irrep, clebsch_gordan

ZERO = 1e-10  # below it a coefficient is rounding


def compute_couplings(irreps: Sequence[Irrep], to: Irrep, degree: int) -> np.ndarray:
    """Couple several copies of the inputs, one after the other, in every way that yields `to`.

    The generalised Clebsch-Gordan coefficients of I. Batatia et al. (arXiv:2206.07697, eq. 10):
    what is coupled already (the left operand) and the next copy to what the product contains, with
    coefficients whose squares sum to the dimension of that ("component" normalisation). Paths are
    ordered, and have the signs, as in `U_matrix_real` of mace-torch 0.3: each coupling is followed
    by a stable sort by degree, then parity.

    Args:
        irreps: representations of the inputs, one after the other.
        to: representation of the result.
        degree: number of copies.

    Returns:
        `U[o, i1, ..., i_degree, k]` with one k for each path, float64, `(to.dim, dim, ..., n)`.
    """
    dim = sum(irrep.dim for irrep in irreps)
    coupled = _list_inputs(irreps)
    for copies in range(2, degree + 1):
        last = copies == degree
        following = [
            (irrep, tensor)
            for left, path in coupled
            for irrep, tensor in _couple_next(left, path, irreps)
            if irrep == to or not last
        ]
        coupled = sorted(following, key=lambda path: path[0])
    paths = [tensor for irrep, tensor in coupled if irrep == to]
    shape = (to.dim,) + (dim,) * degree
    return np.stack(paths, -1) if paths else np.zeros((*shape, 0))


def _list_inputs(irreps: Sequence[Irrep]) -> list[tuple[Irrep, np.ndarray]]:
    """Return the inputs themselves, each as a row of the identity for each component."""
    ends = np.cumsum([irrep.dim for irrep in irreps])
    identity = np.eye(ends[-1])
    return [
        (irrep, identity[end - irrep.dim : end]) for irrep, end in zip(irreps, ends, strict=True)
    ]


def _couple_next(
    left: Irrep, path: np.ndarray, irreps: Sequence[Irrep]
) -> list[tuple[Irrep, np.ndarray]]:
    """Couple the intermediate result of a path with each input."""
    dim, paths, begin = sum(irrep.dim for irrep in irreps), [], 0
    for right in irreps:
        for irrep in left.multiply(right):
            # (result, left, right): the sign of a coefficient depends on the order.
            degrees = irrep.l, left.l, right.l
            table = clebsch_gordan(*degrees) * _sign(*degrees) * np.sqrt(irrep.dim)
            tensor = np.zeros((irrep.dim, *path.shape[1:], dim))
            tensor[..., begin : begin + right.dim] = np.einsum("j...,ajb->a...b", path, table)
            paths.append((irrep, tensor))
        begin += right.dim
    return paths


def _sign(*degrees: int) -> float:
    """Return the sign of the tables of e3nn 0.4, on which mace-torch is built, relative to ours.

    There the first entry other than zero is positive where the entry of `m = 0` vanishes, with the
    degrees in ascending order.
    """
    if sum(degrees) % 2 == 0:
        return 1.0
    table = clebsch_gordan(*sorted(degrees))
    return float(np.sign(table[table != 0][0]))


def collect_terms(tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Collect equal products of inputs: the inputs commute, so that only sums of couplings count.

    Args:
        tensor: result of `compute_couplings`.

    Returns:
        The terms, a row `(o, i1, ..., i_degree)` each with `i1 <= i2 <= ...`, in ascending order,
        and for each the coefficient of each path, `(n_terms, n_paths)`.
    """
    *shape, n_paths = tensor.shape
    index = np.indices(shape).reshape(len(shape), -1).T
    flat = tensor.reshape(len(index), n_paths)
    index[:, 1:] = np.sort(index[:, 1:], axis=1)
    terms, which = np.unique(index, axis=0, return_inverse=True)
    values = np.zeros((len(terms), n_paths))
    np.add.at(values, which.reshape(-1), flat)
    values[abs(values) < ZERO] = 0
    used = values.any(1)
    return terms[used], values[used]


def orthonormalize(values: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns (Gram and Schmidt, the first ones first).

    Most couplings of many copies are combinations of others once the copies are equal.
    """
    basis = np.zeros((len(values), 0))
    for column in values.T:
        rest = column
        for _ in range(2):  # the second time for what rounding has left
            rest = rest - basis @ (basis.T @ rest)
        if np.linalg.norm(rest) > 1e-8 * np.linalg.norm(column):
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    return basis
