"""`pipeline-core predict` with the models of all plugins; the oracle is the calculator of each."""

from __future__ import annotations

from pathlib import Path

import ase.build
import ase.io
import numpy as np
import pytest
from ase import Atoms
from typer.testing import CliRunner

from pipeline_atoms.calculators.loading import load_calculator
from pipeline_core.cli import app
from pipeline_core.project.run import Run
from pipeline_htfbr.data.geometry import find_positions
from pipeline_htfbr.data.hono import HONO
from plugins.htfbr.additive import TRANS
from tiers import exhaustive

pytestmark = pytest.mark.slow


def make_alloy() -> Atoms:
    atoms = ase.build.bulk("Cu", "fcc", a=3.9, cubic=True)
    atoms.symbols = "CuAgCuAg"
    return atoms


def make_oxide() -> Atoms:
    atoms = ase.build.bulk("HfO2", "fluorite", a=5.1)
    atoms.rattle(0.1, seed=3)
    return atoms


def make_hono() -> Atoms:
    molecule = HONO().molecule
    x = TRANS.copy()
    x[5] = 2.0
    return Atoms(molecule.symbols, find_positions(x, molecule, HONO().coordinates))


def predict(run: Run, atoms: Atoms, folder: Path):
    file, output = folder / "mine.traj", folder / "predictions.xyz"
    ase.io.write(file, atoms)
    words = ["predict", run.folder, file, "--output", output, "--device", "cpu"]
    return CliRunner().invoke(app, list(map(str, words))), output


@pytest.mark.parametrize(
    ("name", "make", "fields"),
    [
        ("chgnet", make_oxide, {"energy", "forces", "stress", "magmoms"}),
        ("mace", make_oxide, {"energy", "forces", "stress"}),
        ("htfbr", make_hono, {"energy", "forces"}),
    ],
)
def test_a_potential_predicts_the_structures_of_a_file(name, make, fields, trained_runs, tmp_path):
    run, atoms = trained_runs.find_run(name), make()
    result, output = predict(run, atoms, tmp_path)
    assert result.exit_code == 0, result.output
    assert atoms.get_chemical_formula() in result.output
    written = ase.io.read(output)
    assert set(written.calc.results) == fields
    atoms.calc = load_calculator(run.model)
    assert written.get_potential_energy() == pytest.approx(atoms.get_potential_energy(), abs=1e-6)
    assert np.allclose(written.get_forces(), atoms.get_forces(), atol=1e-6)
    if "stress" in fields:
        assert np.allclose(written.get_stress(), atoms.get_stress(), atol=1e-7)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "htfbr",
            "frame 0 (Ag2Cu2): atoms Cu Ag Cu Ag: the surface describes the molecule H O N O",
        ),
        (
            "egnn_esp",
            "takes samples of the kind 'matrix', not atoms, so it is not a calculator",
        ),
        pytest.param(
            "gauge_flows",
            "takes samples of the kind 'configuration', not atoms",
            marks=exhaustive,
        ),
    ],
)
def test_what_a_model_cannot_predict_is_refused_in_words(name, message, trained_runs, tmp_path):
    result, output = predict(trained_runs.find_run(name), make_alloy(), tmp_path)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not output.exists()
