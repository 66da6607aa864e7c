"""Updates from old features, equation (11) of FastCHGNet. Oracle: the layers one by one."""

import pytest
import torch

from pipeline_chgnet.model.heads import Features
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions


class Unpacked(CHGNet):
    """Equation (11) as it is written, each layer by itself."""

    def _convolve(self, atoms, bases, angles, topology, domain):
        assert domain is None
        free, (basis, short_basis) = atoms, bases
        bonds, short = self.bond_embedding(basis), topology.short_bonds
        atom_weights = self.atom_weights(basis)
        weights = self.bond_weights(short_basis)
        last = len(self.angle_updates)
        for t in range(last + 1):
            v, e, a = atoms, bonds[short], angles
            atoms = self.atom_convolutions[t](v, bonds, atom_weights, topology)
            bonds = bonds.index_copy(
                0, short, self.bond_convolutions[t](v, e, a, weights, topology)
            )
            angles = a if t == last else self.angle_updates[t](v, e, a, topology)
        magmoms = self.magmom(atoms).squeeze(1).abs()
        atoms = self.atom_convolutions[-1](atoms, bonds, atom_weights, topology)
        return Features(free, atoms, bonds), magmoms


@pytest.mark.parametrize("heads", ["none", "pair"])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_packed_maps_are_the_layers_one_by_one(dtype, bound, heads, crystal, batch_of):
    options, results = CHGNetOptions(updates="parallel", heads=heads), []
    for kind in (CHGNet, Unpacked):
        torch.manual_seed(0)
        model = kind(options, CHGNetGraphOptions()).to(dtype)
        outputs = model(batch_of([crystal, crystal.repeat((1, 2, 1))], dtype))
        sum(value.square().sum() for value in outputs.values()).backward()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        results.append({name: x.detach() for name, x in (outputs | gradients).items()})

    largest = max(float(x.abs().max()) for x in results[1].values())
    for name, expected in results[1].items():
        scale = 1.0 if name in outputs else largest
        assert (results[0][name] - expected).abs().max() < bound * scale, name
