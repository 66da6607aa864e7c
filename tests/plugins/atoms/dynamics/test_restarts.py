"""Interrupted molecular dynamics goes on to the bit. Oracle: the same run without interruption."""

from time import sleep
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from ase.build import bulk

from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.dynamics import dynamics
from pipeline_atoms.dynamics.dynamics import remove_restarts
from plugins.atoms.dynamics.interruptions import simulate
from plugins.atoms.dynamics.test_dynamics import ENSEMBLES
from plugins.atoms.lennard_jones import make_calculator


def make_options(ensemble, **changes):
    defaults = {"steps": 11, "every": 2, "restart_every": 4, "temperature": 60.0, "timestep": 4.0}
    return MolecularDynamics(name="test", ensemble=ensemble, **defaults | changes)


def run(folder, options, last=-1, atoms=None, **more):
    atoms = atoms or bulk("Ar", "fcc", 5.4, cubic=True).repeat((2, 2, 1))
    return simulate(folder, options, make_calculator(), atoms, last, **more)


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_it_goes_on_to_the_bit(tmp_path, ensemble):
    options = make_options(ensemble)
    expected, text, n_done = run(tmp_path / "whole", options)
    assert n_done == 1 + 11 + 2  # of the start, of each step, and after the restarts
    assert expected["time"].tolist() == [0, 8, 16, 24, 32, 40]
    for folder, places in (("once", [8]), ("before a restart", [2, 9]), ("often", [7, 6, 3])):
        for last in places:
            assert run(tmp_path / folder, options, last) is None
        arrays, again, _ = run(tmp_path / folder, options)
        assert again == text
        assert arrays.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(arrays[name], values, name)


@pytest.mark.slow
def test_equal_runs_give_equal_bytes(tmp_path, monkeypatch):
    """But for the measured time of a step: files of another second are not others."""
    monkeypatch.setattr(dynamics, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    contents = []
    for name in ("first", "second"):
        run(tmp_path / name, make_options("nvt_langevin", steps=250, every=1, restart_every=200))
        contents.append((tmp_path / name / "md.h5").read_bytes())
        sleep(1.1)
    with h5py.File(tmp_path / "first/md.h5") as file:
        assert {"rdf", "rdf_error", "diffusion"} <= file["test"].keys()
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_what_has_been_done_is_not_done_again(tmp_path):
    options = make_options("nve")
    assert run(tmp_path, options, 7) is None
    # Of the start; steps 5 to 11; after restarts at 4 and 8.
    assert run(tmp_path, options)[2] == 1 + 7 + 2
    assert run(tmp_path, options)[2] <= 1
    remove_restarts(tmp_path / "md/test.extxyz")
    assert [path.name for path in (tmp_path / "md").iterdir()] == ["test.extxyz"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, {"model": "another"}),
        ({"temperature": 61.0}, {}),
        ({}, {"atoms": bulk("Ar", "fcc", 5.5, cubic=True)}),
    ],
    ids=["model", "options", "atoms"],
)
def test_another_run_begins_anew(tmp_path, options, changes):
    assert run(tmp_path / "first", make_options("nve"), 8) is None
    options = make_options("nve", **options)
    texts = [run(tmp_path / name, options, **changes)[1] for name in ("first", "second")]
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_a_damaged_restart_is_not_used(tmp_path):
    options = make_options("nve")
    assert run(tmp_path / "first", options, 8) is None
    path = tmp_path / "first/md/.test.restart/restart.h5"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    _, text, n_done = run(tmp_path / "first", options)
    assert n_done >= 12  # all eleven steps
    assert text == run(tmp_path / "second", options)[1]
