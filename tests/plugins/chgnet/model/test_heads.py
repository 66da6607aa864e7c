"""Forces and stress from heads. Oracles: symmetry, limits, the paper's numbers of parameters."""

import ase
import ase.build
import numpy as np
import pytest
import torch

from pipeline_atoms.testing import PotentialConformance
from pipeline_chgnet.model.layers import GatedPerceptron
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions
from pipeline_core.testing import RunConformance
from tiers import exhaustive

KINDS = ("paper", "pair")
SMALL = {
    "atom_features": 8,
    "bond_features": 8,
    "angle_features": 8,
    "hidden_features": 8,
    "readout_features": [8],
    "radial_functions": 7,
    "angular_functions": 7,
}
MIXED = {
    "epochs": 2,
    "batch_size": 3,
    "precision": "bf16-mixed",
    "loss": {"energy": {}, "forces": {}, "stress": {"unit": "GPa"}},
}
GRAPH = {"cutoff": 4.0, "angle_cutoff": 3.0}


class TestPair(PotentialConformance):
    plugin, model, graph = "chgnet", SMALL | {"heads": "pair"}, GRAPH


class TestPaper(PotentialConformance):
    plugin, model, graph = "chgnet", SMALL | {"heads": "paper"}, GRAPH


@exhaustive
class TestParallelUpdates(PotentialConformance):
    plugin, model, graph = "chgnet", SMALL | {"updates": "parallel"}, GRAPH


@pytest.mark.slow
class TestRunOfPair(RunConformance):
    plugin, model, graph = "chgnet", SMALL | {"heads": "pair", "updates": "parallel"}, GRAPH
    train = MIXED

    @exhaustive
    def test_its_figures_can_be_drawn(self, project, finished):
        super().test_its_figures_can_be_drawn(project, finished)


@exhaustive
class TestRunOfPaper(RunConformance):
    plugin, model, graph = "chgnet", SMALL | {"heads": "paper"}, GRAPH


def make_model(kind, **options):
    torch.manual_seed(0)
    graph = CHGNetGraphOptions()
    return CHGNet(CHGNetOptions(heads=kind, **options), graph).double()


def make_dimer(distance, symbols="LiF"):
    return ase.Atoms(symbols, positions=[[0, 0, 0], [0, 0, distance]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", [3.0, 6.0])
def test_forces_and_stress_are_continuous_where_angles_and_edges_end(distance, kind, batch_of):
    model = make_model(kind)
    for step in (1e-4, 1e-6):
        structures = [make_triangle(distance + sign * step) for sign in (-1, 1)]
        with torch.no_grad():
            before, after = (model(batch_of([atoms], torch.float64)) for atoms in structures)
        for name in ("forces", "stress"):
            assert (after[name] - before[name]).abs().max() < 50 * step * before[name].abs().max()


def make_triangle(distance):
    """Three atoms of a large cell, the last at a distance from the first."""
    atoms = ase.Atoms("FeO2", positions=[[0, 0, 0], [0, 1.9, 0], [distance, 0, 0]])
    atoms.set_cell(np.diag([12.5, 13.0, 13.5]))
    atoms.pbc = True
    return atoms


def test_only_the_stress_of_the_paper_depends_on_the_choice_of_lattice_vectors(crystal, batch_of):
    matrix = np.array([[1, 1, 0], [0, 1, 0], [2, 0, 1]])
    other = ase.Atoms(crystal.numbers, crystal.positions, cell=matrix @ crystal.cell[:], pbc=True)
    changes = {}
    for kind in ("none", *KINDS):
        model = make_model(kind)
        with torch.no_grad():
            one, two = (model(batch_of([atoms], torch.float64)) for atoms in (crystal, other))
        changes[kind] = (two["stress"] - one["stress"]).abs().max() / one["stress"].abs().max()
        for name in one.keys() - {"stress"}:
            torch.testing.assert_close(two[name], one[name], rtol=1e-9, atol=1e-9)

    assert max(changes["none"], changes["pair"]) < 1e-9
    assert changes["paper"] > 1e-3


def test_only_the_pair_head_sees_elements_beyond_the_reach_of_angles(batch_of):
    forces = {}
    for kind in KINDS:
        model = make_model(kind)
        with torch.no_grad():
            pairs = [model(batch_of([make_dimer(4.0, s)], torch.float64)) for s in ("LiF", "CsBr")]
        forces[kind] = [outputs["forces"][1, 2].item() for outputs in pairs]

    assert forces["paper"][0] == forces["paper"][1]
    assert forces["pair"][0] != pytest.approx(forces["pair"][1], rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_of_first_order(kind, crystal, batch_of):
    """Nothing is differentiated on the way: the outputs do not depend on vectors that want it."""
    model, batch = make_model(kind, **SMALL), batch_of([crystal], torch.float64)
    seen = []
    energies = model.energies
    model.energies = lambda batch, vectors: (seen.append(vectors), energies(batch, vectors))[1]

    outputs = model(batch)

    assert not seen[0].requires_grad
    assert outputs["forces"].requires_grad


def count_parameters(**options):
    model = CHGNet(CHGNetOptions(**options), CHGNetGraphOptions())
    return sum(p.numel() for p in model.parameters())


def test_numbers_of_parameters():
    """The paper's: 412.5K of the reference, 411.2K without heads, 429.1K (429,046) with heads."""
    exact = CHGNet(CHGNetOptions(), CHGNetGraphOptions())
    dead_update, references = 33_152, 94
    reference = 379_279 + dead_update + references
    # One layer normalisation, of 64 gains and shifts, for core and gate of ten perceptrons.
    norms = [m.gain for m in exact.modules() if isinstance(m, GatedPerceptron)]
    shared = sum(gain.numel() for gain in norms) // len(norms) * (len(norms) + 1)

    assert count_parameters() == count_parameters(updates="parallel") == 379_279
    assert reference == 412_525
    assert round((reference - shared) / 1000, 1) == 411.2
    assert count_parameters(heads="pair") == 379_279 + 16_577 == 395_856
    assert count_parameters(heads="paper") == 379_279 + 8_256 + 8_576 == 396_111
    assert 429_046 - (reference - shared) == 17_801  # of heads whose sizes the paper does not give


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_precision_is_near_the_exact_result(kind, crystal, batch_of):
    model, batch = make_model(kind).float(), batch_of([crystal], torch.float32)

    exact = model(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(batch)

    for name, value in exact.items():
        assert (rough[name] - value).abs().max() < 0.05 * value.abs().max(), name
    sum(value.square().sum() for value in rough.values()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
