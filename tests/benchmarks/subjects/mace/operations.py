"""Numbers of operations, additions and multiplications, that MACE needs.

Both kernels are linear in each operand (the contraction: in weights and cotangent), so a derivative
by one operand counts as much as the value itself. For the contraction, whose derivative by the
features is longer than its value, this is a lower bound.
"""

import numpy as np
from torch import nn

from pipeline_kernels.equivariant.contraction import Polynomial
from pipeline_kernels.equivariant.tensor_product import ProductPlan
from pipeline_mace.model.layers import Interaction, RadialWeights
from pipeline_mace.model.linear import DegreeLinear, ElementLinear
from pipeline_mace.model.network import MACE


def count_product(plan: ProductPlan, channels: int) -> int:
    """Operations of the tensor product for an edge.

    Harmonics are first multiplied with coefficients, for all channels together; then weights with
    features; then both.
    """
    tables = [path.compute_coefficients() for path in plan.paths]
    terms = sum(int(np.count_nonzero(table)) for table in tables)
    matrices = sum(int(np.count_nonzero(table.any(1))) for table in tables)
    weighted = sum(path.dims[0] for path in plan.paths)
    return 2 * terms + channels * (weighted + 2 * matrices)


def count_contraction(polynomial: Polynomial, channels: int) -> int:
    """Operations of the contraction for an atom: two a term, since terms share their factors."""
    return 2 * channels * polynomial.n_terms


def count_product_calls(n_moving: int) -> dict[str, int]:
    """How often each call of a kernel takes the operations of the tensor product."""
    second = 3 * n_moving  # along each direction: by the two other operands and the cotangent
    return {"forward": 1, "forward and backward": 4, "training": 1 + n_moving + second}


def count_map_calls() -> dict[str, int]:
    """How often each call takes those of the linear map that makes its weights."""
    return {"forward": 1, "forward and backward": 3, "training": 6}


def count_contraction_calls() -> dict[str, int]:
    """The same of the contraction, of which only the features move."""
    return {"forward": 1, "forward and backward": 3, "training": 5}


def count_network_calls(module: MACE, n_atoms: int, n_edges: int) -> dict[str, float]:
    """Operations of an inference and of a training step, small parts left out.

    Radial networks are calculated once for both edges of a pair.
    """
    totals = {"infer": 0.0, "step": 0.0}
    channels = module.options.channels
    for layer, (interaction, product) in enumerate(
        zip(module.interactions, module.products, strict=True)
    ):
        assert isinstance(interaction, Interaction)
        moving = 3 if layer else 2  # the first features do not depend on positions
        edge = n_edges * count_product(interaction.plan, channels)
        atom = n_atoms * count_contraction(product.polynomial, channels)
        fixed = [] if layer else [interaction.up, interaction.skip]
        maps = [interaction.up, interaction.skip, interaction.down, product.linear]
        matrices = n_edges / 2 * count_row_operations(interaction.radial)
        matrices += n_atoms * sum(count_row_operations(part) for part in maps if part not in fixed)
        still = n_atoms * sum(count_row_operations(part) for part in fixed)
        totals["infer"] += (1 + moving) * edge + 2 * atom + 2 * matrices + still
        # Forces are differentiated by weights and features, and so is the energy.
        totals["step"] += (4 + 4 * moving) * edge + 7 * atom + 6 * matrices + 2 * still
    return totals


def count_compiled_inference(module: MACE, n_atoms: int, n_edges: int) -> float:
    """Operations of an inference whose radial weights are cubic splines.

    Each weight and its slope are sums of four products; what follows from the elements alone is in
    a table.
    """
    total = count_network_calls(module, n_atoms, n_edges)["infer"]
    for interaction in module.interactions:
        assert isinstance(interaction, Interaction)
        n_weights = interaction.plan.n_paths * module.options.channels
        total += n_edges * (2 * 2 * 4 * n_weights - count_row_operations(interaction.radial))
    first = module.interactions[0]
    assert isinstance(first, Interaction)
    return total - n_atoms * sum(count_row_operations(part) for part in (first.up, first.skip))


def count_row_operations(part: nn.Module) -> int:
    """Operations of a linear map for a row (an atom, an edge)."""
    if isinstance(part, DegreeLinear):
        return sum(2 * (2 * degree + 1) * w.numel() for degree, w in enumerate(part.weights))
    if isinstance(part, ElementLinear):
        n_degrees, _, inputs, outputs = part.weights.shape
        return 2 * n_degrees**2 * inputs * outputs
    assert isinstance(part, RadialWeights)
    return sum(2 * w.numel() for w in part.weights)
