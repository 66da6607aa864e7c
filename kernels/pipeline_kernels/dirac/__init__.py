r"""Wilson's Dirac operator of lattice gauge theories, with a twisted mass, in 2 and 4 dimensions.

    M = 1 - kappa H + i mu~ gamma5,    mu~ = 2 kappa mu (tau = +1; the other flavour has -mu~),

    (H psi)(x) = sum_mu [ (1 - gamma_mu) U_mu(x) psi(x+mu)
                        + (1 + gamma_mu) U_mu(x-mu)^dagger psi(x-mu) ].

That is the normalisation of Frezzotti et al., hep-lat/0101001, and of tmLQCD (Jansen, Urbach,
arXiv:0905.3331, section 2); the operator in units of mass is M / (2 kappa), with the bare mass
m0 = 1 / (2 kappa) - D.

| symbol    | here                                                                                |
|-----------|-------------------------------------------------------------------------------------|
| U_mu(x)   | links `(batch, D, V, N, N)`, D = 2 or 4, N = 2 or 3, complex64 or complex128        |
| psi       | spinors `(batch, n_rhs, V, S, N)`, S = 2 in 2 dimensions, 4 in 4                    |
| psi_e     | spinors on the even sites, `(batch, n_rhs, V/2, S, N)`; psi_o on the odd ones       |
| V         | sites row by row, the last direction fastest; direction 0 is time; extents even     |
| boundary  | a sign a direction: -1 is antiperiodic; by default time is, space is periodic       |
| gamma_mu  | Hermitian, chiral (`reference.make_gammas`): gamma5 = diag(1, 1, -1, -1)            |
| even, odd | parity of the sum of the coordinates; each half keeps the order of the sites        |

Signs of the boundary multiply the links that leave the last sites. gamma5 M(mu~) gamma5 =
M(-mu~)^dagger. With odd sites only (even-odd preconditioning),

    Mhat = 1 + i mu~ gamma5 - kappa^2 H_oe (1 + i mu~ gamma5)^-1 H_eo,

and det M = (1 + mu~^2)^(N S V / 4) det Mhat. Derivatives by links are those that torch takes: of a
real function f, the tensor G with df = Re sum conj(G) dU.

| function or class  | what it calculates                                          |
|--------------------|-------------------------------------------------------------|
| `DiracOperator`    | H, M, Mhat, their adjoints and derivatives for given links  |
| `split`, `join`    | spinors on all sites to halves and back                     |
| `NormalSolver`     | conjugate gradients on Mhat^dagger Mhat in one precision    |
| `compute_residual` | b - Mhat^dagger Mhat x                                      |

    operator = DiracOperator(links, extents=(4, 4, 4, 4), kappa=0.177, two_kappa_mu=0.177)
    chi = operator.apply(psi)                                # M psi
    chi_o = operator.apply_even_odd(psi_o, adjoint=True)     # Mhat^dagger psi_o
    G = operator.differentiate_even_odd(chi_o, psi_o)        # of Re(chi_o^dagger Mhat psi_o)

C treats several sub-lattices of a configuration at once as lanes of vectors, so that one field
fills them; where the lattice is too small for that, several right-hand sides, or several
configurations of a batch, do (`lanes.py`).
"""

from pipeline_kernels.dirac.geometry import join, split
from pipeline_kernels.dirac.operator import DiracOperator
from pipeline_kernels.dirac.solver import NormalSolver, compute_residual

__all__ = [
    "DiracOperator",
    "NormalSolver",
    "compute_residual",
    "join",
    "split",
]
