"""A trained MACE whose weights are constants, with a reverse pass that is written out.

Radial networks become `splines` of the distance, so that neither they nor weights of edges
are calculated. The first layer starts from a table of elements. Couplings and weights of the
products are combined once, as are linear maps of an element with the maps before them. Forces need
no record of autograd: each layer has a reverse pass from derivatives by its outputs to its inputs.
"""

from pipeline_mace.compiled.network import CompiledMACE

__all__ = ["CompiledMACE"]
