"""The activation of the radial network. Oracle: finite differences, and torch's own function."""

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional
from torch.testing import assert_close

from pipeline_mace.activation import silu

Z = torch.linspace(-30, 30, 13, dtype=torch.float64)


def differentiate(z):
    return torch.autograd.grad(silu(z).sum(), z, create_graph=True)[0]


def test_it_is_silu_with_all_its_derivatives():
    z = Z.clone().requires_grad_()
    assert_close(silu(z), functional.silu(z))
    assert gradcheck(silu, z)
    assert gradgradcheck(silu, z)
    assert gradgradcheck(differentiate, z)


def test_little_is_kept_for_the_second_derivative():
    """The argument and the gradient of the result; torch's own keeps six."""
    z = Z.clone().requires_grad_()
    kept = set()

    def note(x):
        kept.add(x.data_ptr())
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        torch.autograd.grad(silu(z).square().sum(), z, create_graph=True)
    assert len(kept) <= 4
