"""Matrices of SU(2) and SU(3), for lattice gauge theories and maps of their links.

| function                            | what it calculates                                         |
|-------------------------------------|------------------------------------------------------------|
| `spectral_map`                      | `W = sum_k exp(i theta'_k - i theta_k) P_k`, its log-det   |
| `residual_step`                     | a step along the gradient of loops, its log-determinant    |
| `project`                           | `M (M^dagger M)^(-1/2)`, with a determinant of 1           |
| `exponential`                       | from the algebra to the group                              |
| `plaquette_staples`, `staple_layer` | staples, and combinations of links and staples             |
| `path_products`                     | products of links along paths                              |
| `draw_haar`                         | random matrices                                            |

No routine calculates an eigenvector: eigenvalues come from the characteristic polynomial without
cancellation, functions of matrices are polynomials of them. Inputs with equal eigenvalues or
singular values give numbers, and values and derivatives near them keep all digits that the input
determines. Arithmetic is double; matrices may be complex64.

Each family is a folder as in `pipeline_kernels`. If matrices are independent, its C is based on
`vectors.c`, `matrices.c` and `blocks.c` and processes several at once as lanes of vectors, and
`derivatives.py` declares and calls its routines; where links of a sample meet, samples are the
lanes, or places of one, on `fields.c`, called by a `cpu.py` (`lanes.py` loads all). Triton is on
`matrices_cuda.py`. Second derivatives differentiate the references.
"""

from pipeline_kernels.su3.exponential import exponential
from pipeline_kernels.su3.haar import draw_haar
from pipeline_kernels.su3.paths import path_products
from pipeline_kernels.su3.projection import project
from pipeline_kernels.su3.residual import residual_step
from pipeline_kernels.su3.spectral import spectral_map
from pipeline_kernels.su3.staples import plaquette_staples, staple_layer

__all__ = [
    "draw_haar",
    "exponential",
    "path_products",
    "plaquette_staples",
    "project",
    "residual_step",
    "spectral_map",
    "staple_layer",
]
