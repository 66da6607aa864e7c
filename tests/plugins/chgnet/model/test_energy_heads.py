"""Several heads of energies. Oracles: symmetry, and the heads one by one."""

from typing import ClassVar

import pytest
import torch
from ase.data import atomic_numbers

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.testing import PotentialConformance
from pipeline_atoms.testing.example_data import make_alloys
from pipeline_chgnet import plugin
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions
from pipeline_core.task import build_task
from pipeline_core.testing.projects import prepare
from pipeline_core.training.freezing import freeze
from plugins.chgnet.model.test_heads import GRAPH, SMALL
from plugins.two_levels import HEADS, SHIFT, STRETCH, write_levels


class TestEnergyHeads(PotentialConformance):
    plugin, model, graph = "chgnet", SMALL | {"energy_heads": HEADS}, GRAPH
    infer: ClassVar = {"head": "high"}


def make_model(**options):
    torch.manual_seed(0)
    return CHGNet(CHGNetOptions(**SMALL, **options), CHGNetGraphOptions(**GRAPH)).double().eval()


def compute(model, batch, head):
    """Return what one head predicts."""
    model.head = head
    with torch.no_grad():
        return model(batch)


@pytest.fixture
def batch(batch_of):
    """Two structures with their graphs."""
    return batch_of(make_alloys(2, seed=1), torch.float64, GraphOptions(**GRAPH))


def test_each_sample_has_the_energy_of_its_head(batch):
    model = make_model(energy_heads=HEADS)
    model.list_references()[1][:] = -3.0
    alone = [compute(model, batch, head)["energy"] for head in range(2)]
    with torch.no_grad():
        both = model(batch | {"head": torch.tensor([1, 0])})["energy"]
    assert (alone[0] - alone[1]).abs().min() > 1.0
    torch.testing.assert_close(both, torch.stack([alone[1][0], alone[0][1]]))


def test_further_heads_begin_as_the_first(batch):
    before, after = make_model(), make_model(energy_heads=HEADS)
    after.load_state_dict(after.add_heads(before.state_dict(), {"options": {}}))
    expected = compute(before, batch, 0)
    for head in range(2):
        for name, value in compute(after, batch, head).items():
            torch.testing.assert_close(value, expected[name])
    three = make_model(energy_heads=[*HEADS, "highest"])
    three.load_state_dict(three.add_heads(after.state_dict(), {"options": {"energy_heads": HEADS}}))
    with pytest.raises(ValueError, match="name the heads of the model first, in their order"):
        three.add_heads(after.state_dict(), {"options": {"energy_heads": HEADS[::-1]}})


@pytest.mark.slow
def test_the_published_network_gets_a_head(batch_of, crystal, trained):
    published = trained(torch.float64)
    model = CHGNet(CHGNetOptions(energy_heads=["pbe", "r2scan"]), CHGNetGraphOptions())
    model.load_published("0.3.0")
    model.double().eval().list_references()[1].copy_(published.atom_energies)
    inputs = batch_of([crystal], torch.float64)
    expected = compute(published, inputs, 0)["energy"]
    for head in range(2):
        torch.testing.assert_close(compute(model, inputs, head)["energy"], expected)


def test_a_frozen_readout_is_that_of_all_heads():
    model, parts = make_model(energy_heads=HEADS), plugin.model().parts
    expected = [name for name, _ in model.named_parameters() if "readout" in name]
    assert sorted(freeze(model, ["readout"], parts)) == sorted(expected)


@pytest.mark.slow
def test_references_of_each_level_come_from_its_data(tmp_path):
    """The second level is the first stretched, and shifted by element, exactly."""
    model, train = SMALL | {"energy_heads": HEADS}, {"loss": {"energy": {}, "forces": {}}}
    project = write_levels(tmp_path, plugin="chgnet", model=model, graph=GRAPH, train=train)
    run = project.run("levels")
    prepare(run)
    low, high = build_task(run).module.list_references()
    for symbol, shift in SHIFT.items():
        z = atomic_numbers[symbol]
        assert float(high[z]) == pytest.approx(STRETCH * float(low[z]) + shift, abs=1e-6)
