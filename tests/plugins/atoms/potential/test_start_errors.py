"""Warnings about weights that do not fit a dataset; oracle: numpy's moments of known numbers."""

import numpy as np
import pytest
import torch

from pipeline_atoms.potential.start_errors import explain_start
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.world import World
from pipeline_core.task import Quantity
from pipeline_core.training.start_errors import StartErrors


def compare(energies, forces=0.5, n_atoms=2):
    """Return the warnings for differences of energies an atom, and forces of 1 eV/Å."""
    differences = torch.as_tensor(energies, dtype=torch.float64)
    n = len(differences)
    batch = {
        "atom_offsets": n_atoms * torch.arange(n + 1),
        "energy": torch.linspace(-3, 5, n, dtype=torch.float64),
        "forces": torch.ones(n, 3, dtype=torch.float64),
    }
    outputs = {
        "energy": batch["energy"] + n_atoms * differences,
        "forces": forces * batch["forces"],
    }
    quantities = [Quantity("energy", per_atom=True), Quantity("forces")]
    ranks = Ranks(World(), torch.device("cpu"))
    errors = StartErrors(quantities, ranks)
    for rows in (slice(0, n // 2), slice(n // 2, n)):
        part = {name: tensor[rows] for name, tensor in outputs.items()}
        offsets = n_atoms * torch.arange(len(part["energy"]) + 1)
        labels = {name: batch[name][rows] for name in outputs} | {"atom_offsets": offsets}
        errors.add(part, labels)
    return list(explain_start(TrainOptions(start_from="x.pt"), errors.reduce()))


@pytest.mark.parametrize("scatters", [1.9, 2.1])
def test_two_scatters_are_the_limit(scatters):
    """Numpy's moments: the mean is so many standard deviations."""
    noise = np.random.default_rng(0).normal(size=40)
    noise = (noise - noise.mean()) / noise.std()
    found = compare(0.1 * (noise + scatters))
    assert len(found) == (scatters > 2)
    if found:
        assert "by +0.21 eV/atom, with a scatter of 0.1," in found[0]
    assert not compare([5.0])  # one structure has no scatter
    assert not compare(np.full(10, 0.009))  # too small to matter
    assert len(compare(np.full(10, 0.011))) == 1


@pytest.mark.parametrize(("factor", "told"), [(0.01, False), (0.0, True), (-1.0, True)])
def test_forces_that_are_no_better_than_zero(factor, told):
    found = compare(np.zeros(10), factor)
    assert len(found) == told
    if told:
        assert f"{abs(1 - factor):.3g} eV/Å, the error of zero forces 1;" in found[0]
