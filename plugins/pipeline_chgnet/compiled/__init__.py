"""A trained CHGNet whose weights are constants, with a reverse pass that is written out.

What depends on the length of a bond or on an angle alone are splines (`tables`): weights, first
features, and what the first maps of perceptrons make of them. Long bonds, which never change, need
no more, and short ones add what changes. Forces need no record of autograd: each layer knows how to
take a derivative by its results back to its inputs.
"""

from pipeline_chgnet.compiled.network import CompiledCHGNet

__all__ = ["CompiledCHGNet"]
