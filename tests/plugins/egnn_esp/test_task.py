"""Oracles: blocks by their definition, rotations, exact transposes, one rank, analytic masks."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from scipy.spatial.transform import Rotation

from forked_ranks import train_by_command
from pipeline_atoms.graphs import build_neighbour_graph
from pipeline_core.project.run import Run
from pipeline_core.task import build_task
from pipeline_core.testing.projects import call
from pipeline_core.training.model_file import load_model
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.samples import Labelled, complete, compute_energy_zero
from pipeline_egnn_esp.options import BlockLoss, ESPTrainOptions
from pipeline_egnn_esp.training.objective import BlockObjective
from plugins.egnn_esp import trained
from plugins.egnn_esp.made_up import collate_samples, pack_grid
from plugins.egnn_esp.reference import BASIS, read_shipped, select_within
from plugins.egnn_esp.rotation import compute_wigner_matrix
from records import read_history


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return trained.prepare_run(
        tmp_path_factory.mktemp("task"),
    )


@pytest.fixture(scope="module")
def task(run):
    result = build_task(run)
    result.module.double()
    return result


def test_masks_follow_from_elements(task):
    """Hf has 10 orbitals, O has 4: blocks of 100, 40 and 16 elements."""
    actual = task.samples("train").batch([0, 1])
    hafnium = actual["atomic_numbers"] == 72
    count = (~actual["node_blocks"].isnan()).flatten(1).sum(1)
    assert count.tolist() == torch.where(hafnium, 100, 16).tolist()
    ends = hafnium[actual["edge_index"]].sum(1)
    count = (~actual["edge_blocks"].isnan()).flatten(1).sum(1)
    assert count.tolist() == torch.tensor([16, 40, 100])[ends].tolist()
    counts = task.objective.counts(actual)
    assert int(counts["off_site_mae"]) == int(count.sum())
    assert int(counts["on_site_mse"]) == 100 * int(hafnium.sum()) + 16 * int((~hafnium).sum())


def test_pairs_without_a_block_are_zero_as_far_as_others_have_one():
    """A program leaves out what does not overlap; of what lies beyond nothing is known."""
    whole = select_within(read_shipped("cubic-0600K"), 5.0)
    graph = build_graph(whole, 6.0)
    dropped = np.flatnonzero(~whole.is_on_site & (whole.lengths < 4.5))[3]
    kept = np.arange(len(whole.block_atoms)) != dropped
    entries = np.repeat(kept, whole.shapes.prod(axis=1))
    thinned = replace(
        whole,
        block_atoms=whole.block_atoms[kept],
        block_shift=whole.block_shift[kept],
        hamiltonian=whole.hamiltonian[entries],
        overlap=whole.overlap[entries],
    )
    full = complete(thinned, *graph, thinned.lengths.max())
    assert len(full.block_atoms) == len(whole.block_atoms)
    assert full.block_atoms[-1].tolist() == whole.block_atoms[dropped].tolist()
    assert not full.get_block("hamiltonian", len(full.block_atoms) - 1).any()
    _, labels = Labelled(full, 0.0, *graph).make_blocks("hamiltonian")
    known = ~np.isnan(labels).all((1, 2))
    assert len(graph[0]) > known.sum() == 2 * (~whole.is_on_site).sum()


def build_graph(matrix, cutoff):
    atoms = matrix.structure
    return build_neighbour_graph(atoms.positions, atoms.cell, atoms.pbc, cutoff)[:2]


def test_labels_do_not_depend_on_the_zero_of_the_calculation():
    """H and H + 3 S are the same physics."""
    matrix = read_shipped("monoclinic-0600K")
    moved = replace(matrix, hamiltonian=matrix.hamiltonian + 3 * matrix.overlap)
    assert compute_energy_zero(moved) == pytest.approx(compute_energy_zero(matrix) + 3, abs=1e-10)


def test_predictions_turn_with_the_structure(task):
    """H' = D H Dᵀ with the Wigner matrices of the shells."""
    turn = Rotation.random(random_state=4).as_matrix()
    graph = pack_grid(["Hf", "O", "O"], (2, 2, 2), 4.5)
    turned = {**graph, **{name: graph[name] @ turn.T for name in ("positions", "cell")}}
    with torch.no_grad():
        before, after = (task.module(collate_samples(one)) for one in (graph, turned))
    D = torch.from_numpy(compute_wigner_matrix(turn, BASIS.common))
    for name, blocks in before.items():
        torch.testing.assert_close(after[name], D @ blocks @ D.T, rtol=1e-8, atol=1e-8)


def test_sums_are_those_of_the_definition(run, task):
    """By a loop over elements, in float64."""
    loss = BlockLoss(on_site=2.0, off_site=0.5, mse=3.0, mae=1.0, relative=0.1)
    objective = BlockObjective(loss, task.quantities, task.module)
    assert objective.weights == pytest.approx(
        {
            "on_site_mse": 6.0, "on_site_mae": 2.0, "on_site_relative": 0.2,
            "off_site_mse": 1.5, "off_site_mae": 0.5, "off_site_relative": 0.05,
        }
    )  # fmt: skip
    actual = task.samples("train").batch([0])
    with torch.no_grad():
        outputs = task.module(actual)
        sums = objective.sums(outputs, actual)
        nodes, _ = task.module.compute_sizes(actual, len(actual["atomic_numbers"]))
    errors = (outputs["node_blocks"] - actual["node_blocks"]).numpy()
    known = ~np.isnan(errors)
    assert float(sums["on_site_mse"]) == pytest.approx((errors[known] ** 2).sum())
    assert float(sums["on_site_mae"]) == pytest.approx(np.abs(errors[known]).sum())
    relative = np.abs(errors / nodes.numpy())[known].sum()
    assert float(sums["on_site_relative"]) == pytest.approx(relative)


def test_what_is_left_to_learn_has_size_one(task):
    """By the definition of sizes: mean squares of labels less two-centre blocks, in their units."""
    ratios = {"node_blocks": [], "edge_blocks": []}
    for number in range(len(task.samples("train"))):
        actual = task.samples("train").batch([number])
        n = len(actual["atomic_numbers"])
        parts = zip(
            ratios,
            task.module.compute_baseline(actual, n),
            task.module.compute_sizes(actual, n),
            strict=True,
        )
        for label, known, size in parts:
            ratios[label].append(((actual[label] - known) / size)[~actual[label].isnan()])
    on_site, off_site = (float(torch.cat(own).square().mean()) for own in ratios.values())
    assert on_site == pytest.approx(1, abs=1e-6)
    assert off_site == pytest.approx(1, abs=0.3)  # sizes are interpolated


@pytest.mark.slow
def test_a_model_without_two_centre_blocks_starts_from_zero(tmp_path):
    bare = trained.prepare_run(tmp_path, model={"two_centre": False})
    module = build_task(bare).module
    actual = build_task(bare).samples("val").batch([0])
    own, off = module.compute_baseline(actual, len(actual["atomic_numbers"]))
    assert bool(own.any())
    assert not off.any()


@pytest.mark.slow
def test_the_overlap_can_be_learned(tmp_path):
    """Nothing but rounding and splines is left over beside the two-centre blocks."""
    exact = trained.prepare_run(tmp_path, model={"target": "overlap"})
    task = build_task(exact)
    module = task.module.double()
    actual = task.samples("test").batch([0])
    own, off = module.compute_baseline(actual, len(actual["atomic_numbers"]))
    for label, known in (("node_blocks", own), ("edge_blocks", off)):
        size = actual[label].nan_to_num(0).abs().max()
        assert float((actual[label] - known).nan_to_num(0).abs().mean()) < 1e-3 * float(size)
    nodes, _ = module.compute_sizes(actual, len(actual["atomic_numbers"]))
    assert float(nodes.max()) < 1e-6  # orbitals of one atom are orthonormal
    assert task.quantities[0].field.unit == "1"


def test_atoms_around_a_bond_must_be_neighbours(run):
    wrong = run.sections["model"].model_copy(update={"bond_cutoff": 3.0})
    check = run.model_info.check
    check(run.sections)
    with pytest.raises(ValueError, match=r"model.bond_cutoff: 3 Å.* graph.cutoff, 2.25 Å"):
        check({**run.sections, "model": wrong})


def test_mistakes_are_explained(run, tmp_path):
    metadata = dict(build_task(run).metadata)
    metadata["basis"] = Basis({"Hf": (0, 0, 1, 2), "O": (0, 0, 1)}).to_json()
    with pytest.raises(ValueError, match=r"O has shells \[0, 1\], but the model was trained"):
        build_task(run, metadata)
    with pytest.raises(ValueError, match="names no dataset"):
        build_task(replace(run, dataset=None))
    with pytest.raises(ValueError, match=r"train\.blocks"):
        ESPTrainOptions.model_validate({"loss": {"energy": {}}})
    with pytest.raises(ValueError, match="all weights are zero"):
        BlockLoss(mse=0.0, mae=0.0)


@pytest.mark.slow
def test_pairs_that_nobody_learns_are_refused(tmp_path):
    trained.write_project(tmp_path)
    path = tmp_path / "workflows/datasets/frames.yaml"
    content = yaml.safe_load(path.read_text())
    for source in content["sources"]:
        source["cutoff"] = 3.5
    path.write_text(yaml.safe_dump(content))
    run = trained.open_run(tmp_path)
    for stage in ("data", "graph"):
        trained.call(run, stage)
    with pytest.raises(ValueError, match=r"end at 3\.\d+ Å.* up to 4\.\d+ Å.*set graph\.cutoff"):
        trained.call(run, "partition")


def test_a_trained_model_is_rebuilt_without_its_dataset(run, task):
    rebuilt = build_task(replace(run, dataset=None), task.metadata).module.double()
    rebuilt.load_state_dict(task.module.state_dict())
    actual = task.samples("val").batch([0])
    with torch.no_grad():
        for name, blocks in task.module(actual).items():
            assert torch.equal(rebuilt(actual)[name], blocks)


@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_learn_as_one(tmp_path):
    """Three structures on two ranks: unequal shares."""
    train = {"epochs": 2, "batch_size": 3, "precision": "64-true", "blocks": {"relative": 0.1}}
    frames = ("000", "003", "006")
    runs = [trained.prepare_run(tmp_path / "one", frames, train=train)]
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    runs.append(trained.open_run(tmp_path / "two"))
    call(runs[0], "train")
    train_by_command(tmp_path / "two", trained.NAME, 2)
    (weights, lines), (ours, actual) = map(read_result, runs)
    for line, other in zip(lines, actual, strict=True):
        for key in ("train", "val", "mae", "grad_norm"):
            assert other[key] == pytest.approx(line[key], rel=1e-9), key
    for name, tensor in weights.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-9, atol=1e-9)


def read_result(run):
    lines = read_history(run)
    return load_model(run.model)["weights"], lines
