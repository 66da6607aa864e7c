"""Training by heads, on the same structures at two levels of theory.

Oracle: the second level is the first times 1.3 and shifted by element, exactly.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from ase.build import bulk

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.config.graph import GraphOptions
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.task import build_task
from pipeline_core.testing.projects import call
from pipeline_mace.conversion.heads import add_heads
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions
from plugins.two_levels import HEADS, MODEL, SHIFT, STRETCH, write_levels

GRAPH = GraphOptions(cutoff=4.0)
TRAIN = {"loss": {"energy": {}, "forces": {}}}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Both levels, and an experiment."""
    return write_levels(tmp_path_factory.mktemp("heads"), train=TRAIN)


def test_the_mixture_has_heads_and_references_of_each(project):
    run = project.run("levels")
    call(run, "data")
    with SampleFile(run.data, "data") as data:
        heads = data.read_column("head")
        split = data.read_column("split")
        references = json.loads(data.attributes["heads"])
    assert heads.tolist() == [0] * 30 + [1] * 30
    np.testing.assert_array_equal(split[:30], split[30:])
    assert list(references) == HEADS
    for symbol, energy in references["low"].items():
        expected = STRETCH * energy + SHIFT[symbol]
        assert references["high"][symbol] == pytest.approx(expected, abs=1e-6)


def test_a_model_without_the_heads_is_refused(project):
    run = project.run("levels")
    call(run, "data")
    call(run, "graph")
    options = MACEOptions(**MODEL)
    other = replace(run, sections={**run.sections, "model": options})
    with pytest.raises(ValueError, match="heads low, high, and the model has one without a name"):
        build_task(other)


@pytest.mark.slow
def test_weights_of_the_loss_by_head(project):
    """A head of weight zero has no part in the loss; weights are those of the sum."""
    run = project.run("levels")
    call(run, "data")
    call(run, "graph")
    sums = {}
    for weights in ((1.0, 0.0), (0.0, 1.0), (2.0, 3.0)):
        of_head = dict(zip(HEADS, weights, strict=True))
        options = run.sections["train"].model_copy(update={"head_weights": of_head})
        task = build_task(replace(run, sections={**run.sections, "train": options}))
        samples = task.samples("val")
        batch = samples.batch(range(len(samples)))
        outputs = {name: torch.zeros_like(batch[name]) for name in ("energy", "forces")}
        sums[weights] = task.objective.sums(outputs, batch)
    for name in ("energy", "forces"):
        low, high, both = (one[name] for one in sums.values())
        assert low > 0 < high
        torch.testing.assert_close(2 * low + 3 * high, both)


def test_further_heads_begin_as_the_first():
    facts = Facts(("Al",), 12.0)
    before = MACE(MACEOptions(**MODEL), facts, GRAPH)
    after = MACE(MACEOptions(**MODEL, heads=HEADS), facts, GRAPH)
    after.load_state_dict(add_heads(before.state_dict(), ["default"], HEADS))
    features = torch.randn(5, MODEL["channels"])
    for one, two in zip(before.readouts, after.readouts, strict=True):
        torch.testing.assert_close(two(features), one(features).expand(-1, 2))
    with pytest.raises(ValueError, match="name the heads of the model first, in their order"):
        add_heads(after.state_dict(), HEADS, HEADS[::-1])


def test_a_calculator_takes_the_head_that_is_named():
    """Heads that differ in their energies of free atoms alone differ by these."""
    module = MACE(MACEOptions(**MODEL, heads=HEADS), Facts(("Al",), 12.0), GRAPH).eval()
    before = MACE(MACEOptions(**MODEL), Facts(("Al",), 12.0), GRAPH)
    module.load_state_dict(add_heads(before.state_dict(), ["default"], HEADS))
    module.list_references()[1][13] = -3.0
    atoms, graph = bulk("Al", cubic=True), GRAPH
    energies = []
    for head in HEADS:
        calculator = PotentialCalculator(module, graph, ["Al"], head=head)
        energies.append(calculator.get_potential_energy(atoms))
    assert energies[1] - energies[0] == pytest.approx(-12.0, abs=1e-4)
    with pytest.raises(ValueError, match=r"heads low, high, name one of them \(--head of"):
        PotentialCalculator(module, graph, ["Al"])
    with pytest.raises(ValueError, match="heads low, high, and no 'middle'"):
        PotentialCalculator(module, graph, ["Al"], head="middle")
