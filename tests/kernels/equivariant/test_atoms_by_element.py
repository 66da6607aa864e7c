"""Atoms in the order of their elements. The oracle is torch's own comparison."""

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.equivariant.contraction import AtomsByElement, plan, reference


def test_atoms_are_sorted_by_element():
    element = torch.tensor([3, 1, 3, 5] * plan.CHUNK)
    atoms = AtomsByElement.of(element)
    assert atoms.elements.tolist() == [1, 3, 5]
    assert atoms.n_elements == 6
    row, first, last = atoms.chunks.T
    assert (last - first).max() <= plan.CHUNK
    assert first.tolist() == [0, *last[:-1].tolist()]
    for e, begin, end in zip(row, first, last, strict=True):
        assert (element[atoms.order[begin:end]] == atoms.elements[e]).all()
    assert_close(atoms.elements[reference.find_rows(atoms.order, atoms.chunks)], element)


@pytest.mark.parametrize("element", [torch.tensor([1.0]), torch.tensor([[1]]), torch.tensor([-1])])
def test_wrong_elements(element):
    with pytest.raises(ValueError, match="element: expected"):
        AtomsByElement.of(element)
