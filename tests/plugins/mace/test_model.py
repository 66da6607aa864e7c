"""What MACE takes from its data, and what it refuses; parity and symmetry are tested elsewhere."""

import pytest
import torch
from ase.build import bulk

from pipeline_core.config.sections import GraphOptions
from pipeline_core.samples import SampleFile
from pipeline_core.testing.potentials import batch_of
from pipeline_core.testing.projects import call, write_project
from pipeline_core.training.tasks import build_task
from pipeline_mace.model import MACE, Facts
from pipeline_mace.options import MACEOptions

SMALL = {"channels": 4, "lmax": 2, "radial_functions": 4, "radial_features": [8], "cutoff": 4.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    sections = {"model": SMALL, "graph": {"cutoff": 4.0}}
    project = write_project(tmp_path_factory.mktemp("mace"), "mace", sections)
    run = project.run("mace/conformance")
    call(run, "data")
    call(run, "graph")
    return run


def test_neighbours_and_scale_are_those_of_the_training_split(run):
    module = build_task(run).module
    with SampleFile(run.data, "data") as data, SampleFile(run.graph, "graph") as graph:
        train = [n for n in range(len(data)) if data.read(n)["split"] == 0]
        n_edges = sum(len(graph.read(n)["edge_index"]) for n in train)
        forces = torch.cat([torch.from_numpy(data.read(n)["forces"]) for n in train])
    assert module.facts.elements == ("Al", "Cu", "Ag")
    assert module.facts.average_neighbours == pytest.approx(n_edges / len(forces))
    assert float(module.scale) == pytest.approx(float(forces.square().mean().sqrt()), rel=1e-6)


def test_an_unknown_element_is_named():
    module = MACE(MACEOptions(**SMALL), Facts(("Al", "Cu"), 12.0))
    batch = batch_of([bulk("Au")], GraphOptions(cutoff=4.0), torch.float32)
    with pytest.raises(ValueError, match="hold Au, but the network was trained on Al, Cu"):
        module(batch)


def test_different_cutoffs_are_refused(tmp_path):
    sections = {"model": SMALL, "graph": {"cutoff": 5.0}}
    run = write_project(tmp_path, "mace", sections).run("mace/conformance")
    with pytest.raises(ValueError, match=r"model\.cutoff is 4 Å but graph\.cutoff is 5"):
        build_task(run)


def test_the_published_size():
    """3 549 200 parameters at correlation 2, 3 868 176 at 3: mace-torch 0.3.16 for 89 elements."""
    from ase.data import chemical_symbols

    elements = tuple(chemical_symbols[1:90])
    for correlation, expected in ((2, 3_549_200), (3, 3_868_176)):
        options = MACEOptions(correlation=correlation, independent_couplings=True)
        module = MACE(options, Facts(elements, 26.0))
        assert sum(p.numel() for p in module.parameters()) == expected
