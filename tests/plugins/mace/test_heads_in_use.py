"""A model with two heads, used by the commands and in other programs, and evaluated.

Oracle: its calculator, whose heads `test_heads` compares with exact energies; of errors, NumPy on
what it predicts; of the limits of the data, ASE.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import ase.io
import numpy as np
import pytest
from ase.calculators.socketio import SocketIOCalculator
from typer.testing import CliRunner

from pipeline_atoms.calculators.loading import load_calculator
from pipeline_atoms.figures.snippets import write_snippets
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.cli import app
from pipeline_core.evaluation.evaluate import evaluate_run
from pipeline_core.fields import SPLITS
from pipeline_core.figures import parity, predictions
from pipeline_core.figures.catalogue import ENGINE_FIGURES
from pipeline_core.report.card import read_card
from pipeline_core.task import build_task
from pipeline_core.testing.projects import prepare
from pipeline_core.training.model_file import write_model
from plugins.two_levels import HEADS, HIGH, LOW, write_levels

TRAIN = {"loss": {"energy": {}, "forces": {}}}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    return write_levels(tmp_path_factory.mktemp("heads"), train=TRAIN).load_experiment("levels")


@pytest.fixture(scope="module")
def run(experiment):
    """Random weights, with scale, shift and energies of free atoms of each level."""
    run = experiment.runs["base"]
    prepare(run)
    task = build_task(run)
    run.model.parent.mkdir(parents=True, exist_ok=True)
    weights, facts = task.module.state_dict(), run.make_provenance("train")
    write_model(run, task, weights, ("train", np.arange(1)), facts)
    return run


@pytest.fixture
def start(tmp_path):
    """A file with a structure."""
    path = tmp_path / "start.traj"
    ase.io.write(path, LOW[0])
    return path


def call(*words):
    return CliRunner().invoke(app, [*map(str, words), "--device", "cpu"])


def compute_energy(run, head):
    return load_calculator(run.model, head=head).get_potential_energy(LOW[0])


@pytest.mark.slow
def test_predict_takes_the_head_that_is_named(run, start, tmp_path):
    for head in HEADS:
        output = tmp_path / f"{head}.xyz"
        result = call("predict", run.model, start, "--head", head, "--output", output)
        assert result.exit_code == 0, result.output
        energy = ase.io.read(output).get_potential_energy()
        assert energy == pytest.approx(compute_energy(run, head), abs=1e-6)
    assert abs(compute_energy(run, "low") - compute_energy(run, "high")) > 1.0


def test_a_server_gets_the_energy_of_the_head_that_is_named(run, start):
    name = f"pipeline-{uuid4().hex[:12]}"
    words = ("driver", run.model, start, "--head", "high", "--address", f"unix:{name}")
    with ThreadPoolExecutor(1) as pool:
        with SocketIOCalculator(unixsocket=name, timeout=60) as server:
            driver = pool.submit(call, *words)
            atoms = LOW[0].copy()
            atoms.calc = server
            energy = atoms.get_potential_energy()
        assert driver.result().exit_code == 0, driver.result().output
    assert energy == pytest.approx(compute_energy(run, "high"), abs=1e-4)


def test_torch_sim_has_the_energy_of_the_head_of_the_calculator(run):
    pytest.importorskip("torch_sim", reason="needs the extra `torch-sim`", exc_type=ImportError)
    from pipeline_atoms.engines.torch_sim import TorchSimModel
    from plugins.atoms.engines.torch_sim_runs import make_state

    model = TorchSimModel(load_calculator(run.model, head="high"))
    energy = float(model(make_state([LOW[0]]))["energy"])
    assert energy == pytest.approx(compute_energy(run, "high"), abs=1e-4)


@pytest.mark.parametrize("command", ["predict", "driver"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [((), "name one of them (--head"), (("--head", "middle"), "and no 'middle'")],
)
def test_a_head_that_is_missing_or_unknown_is_refused(run, start, command, words, problem):
    result = call(command, run.model, start, *words)
    assert result.exit_code == 1
    assert f"the model has the heads low, high, {problem}" in result.stderr


@pytest.mark.parametrize(
    ("infer", "problem"),
    [
        ({}, "heads low, high, name one of them"),
        ({"head": "middle"}, "heads low, high, and no 'middle'"),
    ],
)
def test_an_experiment_that_uses_the_model_names_a_head(tmp_path, infer, problem):
    infer = {**infer, "md": [{"name": "short", "steps": 5}]}
    project = write_levels(tmp_path, train=TRAIN, infer=infer)
    with pytest.raises(
        ValueError, match=rf"levels\.yaml:\d+: infer\.head: the model has the {problem}"
    ):
        project.run("levels")


@pytest.fixture(scope="module")
def evaluated(run):
    """The run with errors on its validation split, which both levels have in common."""
    evaluate_run(run)
    return run


@pytest.fixture(scope="module")
def expected(evaluated):
    """Labels and predictions by head: energies, eV/atom, and components of forces, eV/Å."""
    with SampleFile(evaluated.data, "data") as data:
        chosen = data.read_column("split")[: len(LOW)] == SPLITS.index("val")
    numbers = {}
    for head, frames in zip(HEADS, (LOW, HIGH), strict=True):
        calculator = load_calculator(evaluated.model, head=head)
        held_out = [atoms for atoms, taken in zip(frames, chosen, strict=True) if taken]
        pairs = []
        for atoms in held_out:
            energy = calculator.get_potential_energy(atoms) / len(atoms)
            pairs.append((atoms.get_potential_energy() / len(atoms), energy))
        forces = [(a.get_forces(), calculator.get_forces(a)) for a in held_out]
        both = (np.concatenate([pair[i].ravel() for pair in forces]) for i in range(2))
        numbers[head] = {"energy_per_atom": np.array(pairs).T, "forces": np.stack([*both])}
    return numbers


def test_errors_are_those_of_each_head(evaluated, expected):
    heads = json.loads(evaluated.metrics.read_text())["splits"]["val"]["heads"]
    assert list(heads) == sorted(HEADS)
    for head, numbers in expected.items():
        for name, (label, predicted) in numbers.items():
            assert heads[head][name]["count"] == len(label)
            mae = np.abs(predicted - label).mean()
            assert heads[head][name]["mae"] == pytest.approx(mae, rel=1e-4)


def test_parity_has_panels_of_each_head(experiment, evaluated, expected):
    figure, table = parity.draw(experiment)
    assert len({axes.get_xlim() for axes in figure.axes}) == len(figure.axes)  # levels lie apart
    assert [row[0] for row in table[1:]] == [f"base, {h}" for h in sorted(HEADS) for _ in range(2)]
    for head, numbers in expected.items():
        for compared in predictions.read_comparisons(evaluated, head):
            label, predicted = numbers[compared.quantity.name]
            np.testing.assert_allclose(compared.label, label, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(compared.predicted, predicted, rtol=1e-4, atol=1e-4)


def test_a_figure_shows_the_errors_of_each_head(experiment, evaluated, expected):
    (figure,) = (one for one in ENGINE_FIGURES if one.name == "errors_by_head")
    _, table = figure.draw(experiment)
    maes = {(row[1], row[2]): row[4] for row in table[1:]}
    for head, numbers in expected.items():
        for name, (label, predicted) in numbers.items():
            mae = 1000 * np.abs(predicted - label).mean()
            assert maes[name, f"{head} (val)"] == pytest.approx(mae, rel=1e-4)


def test_the_card_names_heads_and_their_errors(evaluated, expected):
    text = CliRunner().invoke(app, ["card", str(evaluated.folder)]).output
    assert "| heads | low, high |" in text
    for head, numbers in expected.items():
        label, predicted = numbers["forces"]
        start = f"| validation, head {head} | force | "
        line = next(line for line in text.splitlines() if line.startswith(start))
        mae = 1000 * np.abs(predicted - label).mean()
        assert float(line.removeprefix(start).split()[0]) == pytest.approx(mae, rel=5e-3)


def test_energies_of_the_card_are_beyond_the_references_of_their_level(evaluated):
    with SampleFile(evaluated.data, "data") as data:
        train = data.read_column("split") == SPLITS.index("train")
        references = json.loads(data.attributes["heads"])
    left = [
        (atoms.get_potential_energy() - sum(references[h][s] for s in atoms.symbols)) / len(atoms)
        for h, atoms in zip(np.repeat(HEADS, len(LOW)), [*LOW, *HIGH], strict=True)
    ]
    left = np.array(left)[train]
    limits = read_card(evaluated.model)["card"]["training"]["ranges"]["energy"]
    assert limits == pytest.approx([left.min(), left.max()], abs=1e-6)


def test_the_lines_that_load_the_model_name_a_head(experiment, evaluated):
    (snippet,) = write_snippets(experiment)
    assert f'load_calculator("{evaluated.model}", head="low")' in snippet.code
    assert snippet.note.endswith(f"predict {evaluated.model} FILE --head low")
