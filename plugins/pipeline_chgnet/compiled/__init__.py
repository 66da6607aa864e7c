"""A trained CHGNet whose weights are constants, with a reverse pass that is written out.

Functions of a bond length or of an angle alone are `splines`: weights, first features, and
the first maps of perceptrons applied to them. Long bonds, which never change, need no more, and
short bonds add their changes. Forces need no record of autograd: each layer has a reverse pass from
derivatives by its outputs to derivatives by its inputs.
"""

from pipeline_chgnet.compiled.network import CompiledCHGNet

__all__ = ["CompiledCHGNet"]
