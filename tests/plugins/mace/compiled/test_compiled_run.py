"""A whole run of MACE, from frames to molecular dynamics, with `infer.compile` and without it.

Oracle: the trained network itself, whose own is mace-torch (test_parity.py), and that energy is
conserved.
"""

from dataclasses import replace

import ase.io
import numpy as np
import pytest

from pipeline_atoms.calculators.loading import load_calculator
from pipeline_core.artifacts import store
from pipeline_core.testing.projects import call
from pipeline_mace.compiled import CompiledMACE
from plugins.two_levels import LOW, write_levels

pytestmark = pytest.mark.slow

TRAIN = {"epochs": 3, "batch_size": 4, "precision": "64-true", "loss": {"energy": {}, "forces": {}}}
MD = {"name": "hot", "start": "val:0", "steps": 60, "every": 5, "temperature": 600.0}


def infer(run, compiled):
    """Return summary, positions and trajectory of a simulation."""
    options = run.sections["infer"].model_copy(update={"compile": compiled})
    run = replace(run, sections={**run.sections, "infer": options})
    summary = call(run, "infer")
    with store.open_artifact(run.inference, "inference") as file:
        positions = file["hot/positions"][()]
    return summary["hot"], positions, ase.io.read(run.folder / "md/hot.extxyz", ":")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run."""
    single = {"dataset": "low", "model": {"heads": ["default"]}, "infer": {"head": None}}
    sections = {"train": TRAIN, "infer": {"md": [MD], "head": "low"}, "variants": {"one": single}}
    project = write_levels(tmp_path_factory.mktemp("compiled"), **sections)
    run = replace(project.run("levels", "one"), device="cpu")
    for stage in ("data", "graph", "partition", "train"):
        call(run, stage)
    return run


def test_dynamics_are_those_of_the_network(run, monkeypatch):
    calls, energies = [], CompiledMACE.energies
    monkeypatch.setattr(CompiledMACE, "energies", lambda *a: calls.append(0) or energies(*a))
    plain, expected, frames = infer(run, False)
    assert not calls
    compiled, positions, fast = infer(run, True)
    assert len(calls) > MD["steps"]
    assert np.ptp(expected, axis=0).max() > 0.1  # atoms have moved
    np.testing.assert_allclose(positions, expected, rtol=0, atol=1e-5)
    for one, other in zip(fast, frames, strict=True):
        assert one.get_potential_energy() == pytest.approx(
            other.get_potential_energy(), abs=1e-6 * len(one)
        )
        np.testing.assert_allclose(one.get_forces(), other.get_forces(), rtol=0, atol=1e-5)
    total = [[x.get_total_energy() / len(x) for x in frames] for frames in (frames, fast)]
    np.testing.assert_allclose(total[1], total[0], rtol=0, atol=1e-6)
    assert np.ptp(total[1]) < 1.01 * np.ptp(total[0]) < 0.01
    drift = "drift_meV_per_atom_per_ps"
    assert compiled[drift] == pytest.approx(plain[drift], rel=1e-3, abs=1e-3)


def test_files_give_a_compiled_calculator(run):
    plain, compiled = (load_calculator(run.model, compile=asked) for asked in (False, True))
    assert isinstance(compiled.module, CompiledMACE)
    atoms = LOW[3].copy()
    for calculator in (plain, compiled):
        calculator.calculate(atoms)
    for name in ("energy", "forces", "stress"):
        np.testing.assert_allclose(
            compiled.results[name], plain.results[name], rtol=0, atol=1e-6 * len(atoms)
        )
