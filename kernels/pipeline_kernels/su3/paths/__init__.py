"""Products of links along paths, some of which are passed backwards.

    result[b, a, p] = F_1 F_2 ... F_l,    F_i = links[b, table[i, a, p]], or its adjoint

and with a derivative G by a product, that by its factor i is
`(F_1 ... F_{i-1})^dagger G (F_{i+1} ... F_l)^dagger`.
"""

from pipeline_kernels.su3.paths.op import path_products

__all__ = ["path_products"]
