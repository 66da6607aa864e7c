"""Interrupted molecular dynamics goes on to the bit. Oracle: the same run without interruption."""

import h5py
import numpy as np
import pytest
import torch
from ase.build import bulk

from core.inference.lennard_jones import GRAPH, LennardJones
from pipeline_core.config.sections import MolecularDynamics
from pipeline_core.inference.calculator import PotentialCalculator
from pipeline_core.inference.dynamics import remove_restarts, run_dynamics

ENSEMBLES = ("nve", "nvt_langevin", "nvt_nose_hoover", "npt")


class Interrupted(BaseException):
    """What nothing catches, like a signal."""


class Fragile(PotentialCalculator):
    """A calculator whose process dies at a certain calculation."""

    def __init__(self, last):
        super().__init__(LennardJones(), GRAPH, ["Ar"], dtype=torch.float64)
        self.left = last

    def calculate(self, *arguments, **named):
        if self.left == 0:
            raise Interrupted
        self.left -= 1
        super().calculate(*arguments, **named)


def make_options(ensemble, **changes):
    defaults = {"steps": 11, "every": 2, "restart_every": 4, "temperature": 60.0, "timestep": 4.0}
    return MolecularDynamics(name="test", ensemble=ensemble, **defaults | changes)


def simulate(folder, options, calculator, model="model", atoms=None):
    """Return summary, all arrays and the text of the trajectory."""
    atoms = atoms or bulk("Ar", "fcc", 5.4, cubic=True).repeat((2, 2, 1))
    path = folder / "md/test.extxyz"
    folder.mkdir(exist_ok=True)
    with h5py.File(folder / "md.h5", "w") as file:
        group = file.create_group("test")
        summary = run_dynamics(atoms, calculator, options, 0, path, group, model)
        arrays = {}
        group.visititems(
            lambda name, item: arrays.update({name: item[()]} if hasattr(item, "shape") else {})
        )
    return summary, arrays, path.read_text()


def interrupt(folder, options, last, **changes):
    with pytest.raises(Interrupted):
        simulate(folder, options, Fragile(last), **changes)


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_it_goes_on_to_the_bit(tmp_path, ensemble):
    options = make_options(ensemble)
    _, expected, text = simulate(tmp_path / "whole", options, Fragile(-1))
    assert expected["time"].tolist() == [0, 8, 16, 24, 32, 40]
    for folder, places in (("once", [8]), ("before a restart", [2, 9]), ("often", [7, 6, 3])):
        for last in places:
            interrupt(tmp_path / folder, options, last)
        _, arrays, again = simulate(tmp_path / folder, options, Fragile(-1))
        assert again == text
        assert arrays.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(arrays[name], values, name)


def test_what_has_been_done_is_not_done_again(tmp_path):
    options = make_options("nve")
    interrupt(tmp_path, options, 7)
    calculator = Fragile(-1)
    calculator.left = 1 + 7 + 2  # of the start; steps 5 to 11; after restarts at 4 and 8
    simulate(tmp_path, options, calculator)
    assert calculator.left == 0
    done = Fragile(1)
    simulate(tmp_path, options, done)
    remove_restarts(tmp_path / "md/test.extxyz")
    assert [path.name for path in (tmp_path / "md").iterdir()] == ["test.extxyz"]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "another"},
        {"options": make_options("nve", temperature=61.0)},
        {"atoms": bulk("Ar", "fcc", 5.5, cubic=True)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_run_begins_anew(tmp_path, changes):
    options = changes.pop("options", make_options("nve"))
    interrupt(tmp_path / "first", make_options("nve"), 8)
    ours = simulate(tmp_path / "first", options, Fragile(-1), **changes)
    expected = simulate(tmp_path / "second", options, Fragile(-1), **changes)
    assert ours[2] == expected[2]


def test_a_damaged_restart_is_not_used(tmp_path):
    options = make_options("nve")
    interrupt(tmp_path / "first", options, 8)
    path = tmp_path / "first/md/.test.restart/restart.h5"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    calculator = Fragile(-1)
    _, _, text = simulate(tmp_path / "first", options, calculator)
    assert calculator.left <= -13  # all eleven steps
    assert text == simulate(tmp_path / "second", options, Fragile(-1))[2]
