"""Lines of code on a page that load the best model and its trajectory."""

import ast
from dataclasses import replace

from pipeline_atoms.figures.snippets import write_snippets


def test_the_lines_load_the_best_model_and_its_trajectory(with_models):
    (snippet,) = write_snippets(with_models)
    assert "variant wide" in snippet.note  # its errors are half of those of the base
    ast.parse(snippet.code)
    wide = with_models.runs["wide"]
    assert snippet.note.endswith(f": pipeline-core predict {wide.model} FILE")
    assert f'atoms.calc = load_calculator("{wide.model}")' in snippet.code
    assert f'frames = read("{wide.folder}/md/heat_bath.extxyz", ":")' in snippet.code


def test_there_are_no_lines_without_a_model_that_is_a_calculator(with_models):
    info = replace(with_models.model_info, predicts=("hamiltonian",))
    runs = {name: replace(run, model_info=info) for name, run in with_models.runs.items()}
    assert list(write_snippets(replace(with_models, runs=runs))) == []
    for run in with_models.runs.values():
        run.model.unlink()
    assert list(write_snippets(with_models)) == []
