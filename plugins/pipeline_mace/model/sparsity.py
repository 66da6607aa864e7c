"""Sparsity of the Clebsch-Gordan coefficients of the tensor products."""

import numpy as np

from pipeline_kernels.equivariant.tensor_product import ProductPlan
from pipeline_mace.model.layers import list_harmonics
from pipeline_mace.options import MACEOptions


def make_plan(options: MACEOptions, layer: int) -> ProductPlan:
    """Return the tensor product of a layer; layers count from 0."""
    inputs = list_harmonics(options.max_l if layer else 0)
    return ProductPlan.of(inputs, options.lmax, list_harmonics(options.lmax))


def count_coefficients(options: MACEOptions) -> dict[str, float]:
    """Count the Clebsch-Gordan coefficients of all paths of all layers.

    Args:
        options: Options of the network.

    Returns:
        all; nonzero; share, one over the other.
    """
    paths = [path for n in range(options.layers) for path in make_plan(options, n).paths]
    tables = [path.compute_coefficients() for path in paths]
    total = sum(table.size for table in tables)
    nonzero = sum(int(np.count_nonzero(table)) for table in tables)
    return {"all": total, "nonzero": nonzero, "share": nonzero / total}
