"""Trained with heads, finished without: what the second stage takes of the first."""

import json
import logging
from pathlib import Path

import pytest
import torch
import yaml
from ase.build import bulk

from pipeline_atoms.calculators.loading import load_calculator
from pipeline_core.project.project import Project
from pipeline_core.testing.projects import call, write_project
from pipeline_core.training.model_file import load_model, save_archive
from pipeline_core.training.trainer import train_run

NAME = "chgnet/heads_then_conservative"
SHIPPED = Path(__file__).parents[3] / "workflows/experiments" / f"{NAME}.yaml"
VARIANTS = ("base", "conservative")


def make_project(folder: Path) -> Project:
    """The shipped experiment on alloys, three epochs a stage."""
    project = write_project(folder, "chgnet", {})
    content = yaml.safe_load(SHIPPED.read_text()) | {"dataset": "samples"}
    for train in (content["train"], content["variants"]["conservative"]["train"]):
        train["epochs"] = 3
    path = folder / "workflows/experiments" / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump(content))
    run = project.run(NAME, "base")
    for stage in ("data", "graph", "partition"):
        call(run, stage)
    call(project.run(NAME, "conservative"), "partition")
    return project


@pytest.fixture
def first(tmp_path):
    project = make_project(tmp_path)
    train_run(project.run(NAME, "base"))
    return project


@pytest.mark.slow
def test_metrics_say_how_far_direct_forces_are_from_a_gradient(first):
    edit_variant(first, train={"epochs": 1})
    train_run(first.run(NAME, "conservative"))
    runs = [first.run(NAME, variant) for variant in VARIANTS]
    summaries = [call(run, "evaluate") for run in runs]
    direct, derived = (json.loads(run.metrics.read_text())["splits"]["val"] for run in runs)

    assert 0 < direct["conservation"]["curl"] < 10
    assert direct["conservation"]["mismatch"] > 0
    assert "conservation" not in derived
    assert "curl of the forces" in summaries[0]["val"]
    assert "curl of the forces" not in summaries[1]["val"]


def edit_variant(project: Project, **sections) -> None:
    path = project.workflows / "experiments" / f"{NAME}.yaml"
    content = yaml.safe_load(path.read_text())
    variant = content["variants"]["conservative"]
    for name, section in sections.items():
        variant[name] = variant.get(name, {}) | section
    path.write_text(yaml.safe_dump(content))


@pytest.mark.slow
def test_the_second_stage_takes_all_but_the_heads(first, caplog):
    edit_variant(first, train={"epochs": 1, "optimizer": {"lr": 1e-12}})
    run = first.run(NAME, "conservative")
    with caplog.at_level(logging.INFO):
        train_run(run)

    before = load_model(first.run(NAME, "base").model)["weights"]
    after = load_model(run.model)["weights"]
    assert "taken without its heads (heads.force.0.bias" in caplog.text
    assert {name for name in before if name not in after} == {
        name for name in before if name.startswith("heads.")
    }
    for name, tensor in after.items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=1e-6)
    atoms = bulk("Cu", "fcc", 3.8, cubic=True)
    energies = []
    for variant in VARIANTS:
        atoms.calc = load_calculator(first.run(NAME, variant).model)
        energies.append(atoms.get_potential_energy())
    assert energies[0] == pytest.approx(energies[1], abs=1e-4)


@pytest.mark.slow
def test_the_name_of_a_variant_that_does_not_exist_is_explained(tmp_path):
    project = make_project(tmp_path)
    for wrong in ("bass", "conservative"):
        edit_variant(project, train={"start_from": f"variant:{wrong}"})
        message = (
            rf"variants.*start_from.*'variant:{wrong}' is not another variant .* base, without"
        )
        with pytest.raises(ValueError, match=message):
            project.run(NAME)


def test_other_weights_below_the_heads_are_noticed(first):
    model = first.run(NAME, "base").model
    content = load_model(model)
    content["weights"]["readout.0.weight"] += 0.5
    save_archive(model, content, {})
    with pytest.raises(ValueError, match=r"does not reproduce .*: energy by"):
        train_run(first.run(NAME, "conservative"))
