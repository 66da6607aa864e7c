"""Where models and trajectories lie, and lines that load them."""

import ast
from dataclasses import replace

import pytest

from core.figures import synthetic
from pipeline_atoms.figures.snippets import write_snippets
from pipeline_core.artifacts import store
from pipeline_core.report import artifacts


@pytest.fixture
def experiment(folder):
    """Return the experiment with models, which `synthetic` does not write."""
    result = synthetic.load(folder)
    for run in result.runs.values():
        with store.write_sealed(run.model, {}) as file:
            file.write(b"weights")
    return result


def test_models_and_trajectories_are_listed_and_what_the_workflow_keeps_is_not(experiment):
    table = artifacts.tabulate_files(experiment)
    assert table.header == ["variant", "what", "path"]
    wide = experiment.runs["wide"].folder
    assert [row[1:] for row in table.rows if row[0] == "wide"] == [
        ["model", f"{wide}/model.pt"],
        ["use of the model", f"{wide}/inference.h5"],
        ["trajectory", f"{wide}/md/heat_bath.extxyz"],
        ["trajectory", f"{wide}/md/nve.extxyz"],
    ]


def test_a_folder_of_many_files_is_one_line(experiment):
    exported = experiment.runs["base"].folder / "configurations"
    exported.mkdir()
    for number in range(20):
        (exported / f"{number}.lime").touch()
    rows = artifacts.tabulate_files(experiment).rows
    assert ["base", "20 files", f"{exported}/"] in rows


def test_the_lines_load_the_best_model_and_its_trajectory(experiment):
    (snippet,) = write_snippets(experiment)
    assert "variant wide" in snippet.note  # its errors are half of those of the base
    ast.parse(snippet.code)
    wide = experiment.runs["wide"]
    assert snippet.note.endswith(f": pipeline-core predict {wide.model} FILE")
    assert f'atoms.calc = load_calculator("{wide.model}")' in snippet.code
    assert f'frames = read("{wide.folder}/md/heat_bath.extxyz", ":")' in snippet.code


def test_there_are_no_lines_without_a_model_that_is_a_calculator(experiment):
    info = replace(experiment.model_info, predicts=("hamiltonian",))
    runs = {name: replace(run, model_info=info) for name, run in experiment.runs.items()}
    assert list(write_snippets(replace(experiment, runs=runs))) == []
    for run in experiment.runs.values():
        run.model.unlink()
    assert list(write_snippets(experiment)) == []
