"""What MACE takes from its data, and what it refuses; parity and symmetry are tested elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.testing.potentials import build_batch
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.task import build_task
from pipeline_core.testing.projects import call, write_project
from pipeline_core.training.model_file import load_model
from pipeline_core.training.start import start_metadata
from pipeline_kernels.equivariant.tensor_product import parts
from pipeline_mace.model import layers
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions

SMALL = {"channels": 4, "lmax": 2, "radial_functions": 4, "radial_features": [8]}
GRAPH = GraphOptions(cutoff=4.0)


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
        given = [float(data.read(n)["energy"]) for n in train]
        atoms = [data.read(n)["atomic_numbers"].tolist() for n in train]
    assert module.facts.elements == ("Al", "Cu", "Ag")
    assert module.facts.average_neighbours == pytest.approx(n_edges / len(forces))
    free = [sum(float(module.atom_energies[z]) for z in numbers) for numbers in atoms]
    bonds = [(e - f) / len(z) for e, f, z in zip(given, free, atoms, strict=True)]
    assert float(module.scale) == pytest.approx(float(forces.square().mean().sqrt()), rel=1e-6)
    assert float(module.shift) == pytest.approx(np.mean(bonds), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_unknown_element_is_named(compiled):
    module = MACE(MACEOptions(**SMALL), Facts(("Al", "Cu"), 12.0), GRAPH).requires_grad_(False)
    module = module.compile_inference() if compiled else module
    batch = build_batch([bulk("Au")], GRAPH, torch.float32)
    with pytest.raises(ValueError, match="hold Au, but the network was trained on Al, Cu"):
        module(batch)


def test_a_cutoff_of_the_model_is_refused_with_its_place(tmp_path):
    sections = {"model": SMALL | {"cutoff": 5.0}, "graph": {"cutoff": 5.0}}
    message = r"conformance\.yaml:\d+: model\.cutoff: moved to graph\.cutoff; delete it here"
    with pytest.raises(ValueError, match=message):
        write_project(tmp_path, "mace", sections).load_experiment("mace/conformance")


def test_the_radial_basis_ends_where_the_graph_does(tmp_path):
    project = write_project(tmp_path, "mace", {"model": SMALL, "graph": {"cutoff": 4.7}})
    run = project.run("mace/conformance")
    call(run, "data")
    call(run, "graph")
    assert build_task(run).module.radial_basis.cutoff == 4.7


def test_the_published_size():
    """3 549 200 parameters at correlation 2, 3 868 176 at 3: mace-torch 0.3.16 for 89 elements."""
    from ase.data import chemical_symbols

    elements = tuple(chemical_symbols[1:90])
    for correlation, expected in ((2, 3_549_200), (3, 3_868_176)):
        options = MACEOptions(correlation=correlation, independent_couplings=True)
        module = MACE(options, Facts(elements, 26.0), GRAPH)
        assert sum(p.numel() for p in module.parameters()) == expected


def test_the_reference_kernels_train_the_same():
    """The formulas operation by operation are what the fused kernels replace."""
    batch = build_batch([bulk("Al").repeat((2, 1, 1))], GRAPH, torch.float64)
    result = []
    for kernels in ("fused", "reference"):
        torch.manual_seed(0)
        options = MACEOptions(**SMALL, correlation=3, kernels=kernels)
        module = MACE(options, Facts(("Al",), 20.0), GRAPH).double()
        outputs = module(batch)
        loss = outputs["energy"].square().sum() + outputs["forces"].square().sum()
        loss.backward()
        gradients = [p.grad.ravel() for p in module.parameters() if p.grad is not None]
        result.append(
            [outputs["forces"].detach(), outputs["stress"].detach(), torch.cat(gradients)]
        )
    for fused, plain in zip(*result, strict=True):
        assert torch.allclose(fused, plain, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_fine_tuning_keeps_the_network(tmp_path, run):
    """Elements and neighbours normalise the weights: those of other data would change them."""
    call(run, "partition")
    call(run, "train")
    train = {"epochs": 1, "start_from": str(run.model)}
    sections = {"model": SMALL, "graph": {"cutoff": 4.0}, "train": train}
    tuned = write_project(tmp_path, "mace", sections).run("mace/conformance")
    squeezed = [bulk("Cu", a=a, cubic=True).repeat((2, 1, 1)) for a in np.linspace(3.3, 3.5, 9)]
    for atoms in squeezed:
        atoms.calc = EMT()
        atoms.get_potential_energy()
        atoms.get_stress()
    write(tuned.dataset.path.with_name("alloys.extxyz"), squeezed)
    for stage in ("data", "graph", "partition", "train", "evaluate"):
        call(tuned, stage)
    before, after = (load_model(r.model)["metadata"] for r in (run, tuned))
    assert after["elements"] == ["Al", "Cu", "Ag"]
    assert after["average_neighbours"] == before["average_neighbours"]
    assert build_task(tuned).module.facts != build_task(tuned, after).module.facts
    farther = replace(tuned, sections={**tuned.sections, "graph": GraphOptions(cutoff=5.0)})
    with pytest.raises(
        ValueError, match=r"model\.pt: .* graph\.cutoff: 4\.0, .* has 5\.0; set graph"
    ):
        start_metadata(farther)


def test_a_large_structure_is_calculated_in_parts(monkeypatch):
    """Oracle: the same structure with the weights of all edges at once."""
    batch = build_batch([bulk("Al").repeat((3, 3, 3))], GRAPH, torch.float64)
    batch["positions"] += 0.05 * torch.randn(batch["positions"].shape, dtype=torch.float64)
    torch.manual_seed(0)
    module = MACE(MACEOptions(**SMALL), Facts(("Al",), 20.0), GRAPH).double()
    module.eval().requires_grad_(False)
    called = []

    def count(*arguments):
        called.append(len(arguments[2]))
        return parts.multiply_in_parts(*arguments)

    for interaction in module.interactions:
        monkeypatch.setattr(
            interaction, "kernels", replace(interaction.kernels, multiply_in_parts=count)
        )
    monkeypatch.setattr(parts, "PART_BYTES", 10_000)
    with torch.no_grad():
        whole = module(batch)
        assert not called
        monkeypatch.setattr(layers, "MAX_WEIGHTS", 0)
        divided = module(batch)
    assert called == [len(batch["edge_index"])] * 2
    for name, value in whole.items():
        torch.testing.assert_close(divided[name], value, rtol=1e-10, atol=1e-12)
    module.train()(batch)  # a training needs all weights, of frozen interactions, too
    module.eval().requires_grad_(True)(batch)
    assert len(called) == 2


@pytest.mark.parametrize(("options", "message"), [
    ({"max_l": 2, "lmax": 1}, "features of degree 2 do not exist with lmax 1"),
    ({"heads": ["pbe", "pbe"]}, "names pbe, pbe have to differ"),
])  # fmt: skip
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MACEOptions(**options)
    MACEOptions(max_l=1, lmax=0, layers=1)
