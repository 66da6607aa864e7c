"""Numbers of operations, real additions and multiplications, that kernels of SU(3) need a matrix.

Counted is the algorithm, not the code: each intermediate result once, entries that a symmetry
gives not at all; comparisons, choices, changes of sign and copies are no operations. An addition
and a multiplication count two also where a processor does both at once, as in a product of
matrices, whose rate is the limit.

Divisions, roots and transcendental functions count what vector implementations take that are
accurate to a rounding or two and have no table: those of `su3/vectors.c`, of the same degrees as
SLEEF's (N. Shibata and F. Petrogalli, arXiv:2001.09258), except where SLEEF takes fewer.
"""

from typing import Final

# From an estimate of 14 bits two steps of Newton, r += r (1 - b r); q = a r, q += r (a - b q).
DIVISION: Final = 2 * 4 + 1 + 4
# The same for 1 / sqrt x, y += y (1/2 - x y^2 / 2), then s = x y, s += y (x - s^2) / 2.
ROOT: Final = 2 * 6 + 1 + 3
SINE: Final = 9 + 1 + 15  # reduction in three parts, square, polynomial of degree 13
SINE_COSINE: Final = SINE + 13
ARC: Final = 3 + DIVISION + 1 + 23 + 3  # of y / x, in all quadrants: polynomial of 11 terms
EXPONENTIAL: Final = 3 + 4 + 20 + 4  # reduction in two parts, polynomial of degree 12
LOGARITHM: Final = 2 + DIVISION + 1 + 14 + 9  # of (m - 1) / (m + 1): 8 terms; exponent of two
CUBE_ROOT: Final = 10 + 20  # as SLEEF: polynomial of degree 5, a step of Newton, no division

# Of 3 x 3 matrices of complex numbers.
PRODUCT: Final = 27 * 6 + 18 * 2
HERMITIAN_PRODUCT: Final = 3 * 22 + 3 * 11  # entries above the diagonal, real ones on it
COFACTORS: Final = 9 * 14
DETERMINANT: Final = 22  # from cofactors
TRACE: Final = 4
TRACE_PRODUCT: Final = 9 * 8 - 2
SQUARE_SUM: Final = 35  # of the magnitudes of all entries
SCALED: Final = 9 * 6  # complex factor
ADDED: Final = 9 * 8  # the same, added
REAL_ADDED: Final = 9 * 4
SUM: Final = 9 * 2
POLYNOMIAL: Final = SCALED + ADDED + 6  # of a matrix and its square, complex coefficients
PART: Final = 18  # in the algebra
DIMENSION: Final = 8  # of the algebra
MAP_PRODUCT: Final = 2 * DIMENSION**3

# Eigenvalues of a special unitary matrix, projectors as polynomials: mean and rest, its square,
# invariants, root of the cubic, derivative there, coefficients, angles.
SINGLE_ROOT: Final = (
    (TRACE_PRODUCT + SQUARE_SUM + 187 + DIVISION + 18 + ARC + SINE_COSINE + CUBE_ROOT)
    + (3 + 3 + ROOT + 9 + DIVISION)
    + (8 + 33 + 4)
)
DECOMPOSITION: Final = (
    (12 + PRODUCT + 6 + SINGLE_ROOT)
    + (13 + 2 + DIVISION + 16 + 25)
    + (POLYNOMIAL + SQUARE_SUM + 1 + ROOT + 4 + 3 + ROOT)
    + (2 * ARC + 2 * DIVISION + 7 + ROOT + DIVISION)
    + (20 + DIVISION + 21)
)
PROJECTORS: Final = 8 + 18 + 26 + 2 + POLYNOMIAL  # a combination of them


def count_polar(steps: float) -> float:
    """Unitary factor by so many steps of Newton's iteration, with what tells that it has ended."""
    norms = 2 * SQUARE_SUM + 3 + DIVISION + 3
    return steps * (COFACTORS + DETERMINANT + norms + 3 + 9 * 16)


def count_splines(bins: int) -> int:
    """Two splines, with their slopes."""
    bins_of = 4 * (bins * (EXPONENTIAL + 4) + DIVISION + 2)
    slopes_of = 4 * (EXPONENTIAL + LOGARITHM + 4)
    return bins_of + slopes_of + 2 * (2 * bins + 6 + 6 * DIVISION + 33) + 3 * 3 + 3 + 2 * DIVISION


def count_rotation() -> int:
    """W as a polynomial, from the changes of the angles."""
    return 7 + 2 * SINE_COSINE + 3 + 18 + 20 + 5 + 27


def count_spectral(bins: int) -> int:
    """Spectral map with log-determinant: six sines."""
    log_det = 6 * (SINE + 3) + DIVISION + 9 + LOGARITHM
    return DECOMPOSITION + count_splines(bins) + count_rotation() + POLYNOMIAL + log_det


def count_spectral_gradient(bins: int) -> int:
    """Derivatives by matrix and parameters: all but W again, then backwards."""
    sines = 6 * (SINE_COSINE + 3) + 6 * (2 * DIVISION + 11) + 3 * (2 * DIVISION + 40)
    splines = 2 * (6 * DIVISION + 75) + 4 * (3 * bins + 20) + 4 * (DIVISION + 7) + 30
    components = TRACE + 2 * TRACE_PRODUCT + 56 + 30
    matrix = SCALED + 2 * PRODUCT + SUM + ADDED + PROJECTORS + 3 * 22 + 8
    forward = DECOMPOSITION + count_splines(bins) + count_rotation()
    return forward + components + sines + splines + matrix


def count_exponential(doublings: float) -> float:
    """Exponential: 18 terms of a polynomial of degree two, squared some times."""
    invariants = PART + HERMITIAN_PRODUCT + 30 + 3
    polynomial = 6 * 6 + 3 * 2 + 6 * 8 + 3 * 4 + 6  # diagonals of Hermitian matrices are real
    return invariants + 18 * 7 + doublings * 70 + polynomial


def count_exponential_gradient(doublings: float) -> float:
    """Derivative by the matrix: two polynomials, traces, an anticommutator."""
    series = 18 * (7 + 8) + doublings * (70 + 100)
    back = TRACE + 2 * TRACE_PRODUCT + 2 * (3 * 16 + 6) + PRODUCT + 2 * SUM + 2 * REAL_ADDED + 25
    return PART + HERMITIAN_PRODUCT + 33 + series + back


def count_psi() -> int:
    """Psi as a real matrix: two sums of 12 terms, nine coefficients, images of E_ij."""
    coefficients = 2 * 12 * 6 + 10 + 6 * 27
    rows = 3 * (2 * (6 * 8 + 3 * 4))
    images = 3 * (9 * 14 + 6) + 2 * 6 * 14
    return coefficients + rows + images + 3 * (12 + 12) + 2 * 30


def count_residual(paths: int) -> int:
    """Residual step with log-determinant."""
    loop = paths * REAL_ADDED + PRODUCT
    slope = count_psi() + DIMENSION * 14 + MAP_PRODUCT + DIMENSION
    determinant = sum(k + 2 * k * k for k in range(DIMENSION)) + DIMENSION * (1 + DIVISION)
    return round(loop + count_exponential(0)) + slope + determinant + LOGARITHM + PRODUCT


def count_residual_gradient(paths: int) -> int:
    """Derivatives by link, paths and weights."""
    forward = paths * REAL_ADDED + PRODUCT + round(count_exponential(0)) + count_psi()
    slope = DIMENSION * 14 + MAP_PRODUCT + DIMENSION
    inverse = MAP_PRODUCT + DIMENSION * DIVISION
    contraction = 2 * 9 * 9 * 8 + 9 * SUM + DIMENSION * 24
    by_psi = contraction + 3 * 2 * ADDED + PRODUCT + 4 * SUM + 4 * TRACE_PRODUCT + 2 * REAL_ADDED
    derivatives = 2 * 12 * 6 + 60 + 2 * 6 * 36
    by_turn = PRODUCT + round(count_exponential_gradient(0)) - PART - HERMITIAN_PRODUCT - 33
    out = 4 * PRODUCT + SUM + paths * (35 + 18)
    by_map = 2 * MAP_PRODUCT + DIMENSION * 20 + by_psi + derivatives
    return forward + slope + inverse + by_map + by_turn - 18 * 7 + out


def count_paths(length: int) -> int:
    """A product along a path."""
    return (length - 1) * PRODUCT


def count_paths_gradient(length: int) -> int:
    """Derivatives by the links of a path: products again, then backwards."""
    return (length - 2 + 2 * (length - 1)) * PRODUCT + length * SUM


def count_staples(n_in: int, n_out: int, directions: int) -> int:
    """Staples of a link in all channels, combined."""
    combined = n_in * (2 * directions - 1)
    return 2 * (directions - 1) * n_in * 2 * PRODUCT + n_out * combined * REAL_ADDED


def count_staples_gradient(n_in: int, n_out: int, directions: int) -> int:
    """Derivatives: staples again, by coefficients, by staples, by their three links."""
    combined = n_in * (2 * directions - 1)
    back = 2 * (directions - 1) * n_in * (4 * PRODUCT + 3 * SUM)
    return count_staples(n_in, n_out, directions) + n_out * combined * REAL_ADDED + back
