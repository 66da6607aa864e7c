"""The linear map of each element. Oracle: the product with the weights of each atom's own."""

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.equivariant.contraction import AtomsByElement
from pipeline_mace.kernels import KERNELS
from pipeline_mace.linear import ElementLinear


def differentiate(map_atoms, features, weights):
    """Return values, first derivatives, and derivatives of these."""
    value = map_atoms(features, weights)
    first = torch.autograd.grad(value.square().sum(), [features, weights], create_graph=True)
    second = torch.autograd.grad(sum(x.square().sum() for x in first), [features, weights])
    return [value, *first, *second]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("elements", [[2, 0, 2, 2, 0, 4, 2], [3]])
def test_atoms_are_mapped_by_the_weights_of_their_element(elements, kernels):
    module = ElementLinear(5, channels=3, n_degrees=2, kernels=KERNELS[kernels]).double()
    element = torch.tensor(elements, dtype=torch.int64)
    features = torch.randn(len(element), 9, 3, dtype=torch.float64, requires_grad=True)
    atoms = AtomsByElement.of(element)

    def expected(x, weights):
        own = weights[[0, 1, 1, 1]][:, element] / 15**0.5  # (components, n_atoms, in, out)
        return torch.einsum("nmi,mnio->nmo", x[:, :4], own)

    def actual(x, weights):
        return torch.func.functional_call(module, {"weights": weights}, (x, atoms))

    for ours, exact in zip(
        differentiate(actual, features, module.weights),
        differentiate(expected, features, module.weights),
        strict=True,
    ):
        assert_close(ours, exact)
