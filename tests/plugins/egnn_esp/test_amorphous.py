"""The amorphous cell of the benchmark, made small: how it is made, and that ranks agree on it.

Oracles: the crystal, and what one rank computes.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks._amorphous import CELL, REPEAT, build_crystal, measure_disorder
from processes import make_environment

BENCHMARK = Path(__file__).parents[2] / "benchmarks/esp_amorphous.py"


def test_the_crystal_fills_the_cell_of_the_paper():
    atoms = build_crystal(REPEAT)
    assert len(atoms) == 3000
    assert (atoms.numbers == 8).sum() == 2000
    np.testing.assert_allclose(atoms.cell.lengths(), CELL)
    small = build_crystal((2, 1, 1))
    assert small.get_volume() / len(small) == pytest.approx(atoms.get_volume() / 3000)


def test_fluorite_has_eight_neighbours_and_moves_as_it_is_moved():
    crystal = build_crystal((2, 2, 2))
    moved = crystal.copy()
    moved.positions += [0.3, 0, -0.4]
    moved.wrap()
    facts = measure_disorder(crystal, moved)
    assert facts["coordination"] == 8
    assert facts["moved_rms"] == pytest.approx(0.5)
    assert facts["nearest"] == pytest.approx(crystal.get_distances(0, range(1, 96), mic=True).min())


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_train_and_predict_the_same(tmp_path):
    pytest.importorskip("chgnet", reason="needs the extra 'peers'")
    words = ["--small", "--steps", "2", "--ranks", "2", "--channels", "4"]
    done = subprocess.run(
        [sys.executable, BENCHMARK, *words, "--cell", tmp_path / "cell.xyz"],
        env=make_environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["atoms"] == 96
    assert result["cell"]["moved_rms"] > 0.1
    assert result["max_difference"] < 1e-10
    assert result["loss_difference"] < 1e-10
    assert [(run["method"], run["ranks"]) for run in result["runs"]] == [
        ("auto", 1), ("auto", 2), ("slices", 2),
    ]  # fmt: skip
    first, second = result["runs"][0]["losses"]
    assert second != first
    for run in result["runs"]:
        assert sum(run["own"]) == 96
        assert sum(run["edges"]) == result["edges"]
    assert {cut["method"] for cut in result["cuts"]} > {"slices", "metis", "low_nn"}
