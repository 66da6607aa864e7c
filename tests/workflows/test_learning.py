"""A loop that asks for labels, from raw data to its figure, killed in the middle of its labels.

Labels are those of effective-medium theory as ASE has it, by a program that reads and writes files.
Oracles: inodes and bytes of labels and the calls of the program; the errors in `metrics.json`.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from ase import units
from ase.calculators.emt import EMT
from ase.io import read, write
from ase.md.langevin import Langevin

from forked_programs import start_programs
from pipeline_atoms.testing.example_data import make_alloys
from tiers import exhaustive
from workflows.toy import REPOSITORY, make_environment

LIMIT = 600  # seconds; for a test that hangs, not for its speed
ROUNDS, PER_ROUND = 2, 2
PROGRAM = """
import sys
from ase.calculators.emt import EMT
from ase.io import read, write
with open(sys.argv[3], "a") as file:
    file.write("called\\n")
atoms = read(sys.argv[1])
atoms.calc = EMT()
atoms.get_potential_energy(), atoms.get_stress()
write(sys.argv[2], atoms)
"""
MODEL = {
    "channels": 8,
    "max_l": 1,
    "lmax": 2,
    "correlation": 2,
    "radial_features": [16, 16],
}
HOT = {"ensemble": "nvt_langevin", "steps": 40, "every": 2, "timestep": 2.0, "start": "train:0"}


def write_loop(folder):
    """Write a project of rounds beside what they are to be good for: hot frames of the test."""
    data = folder / "workflows/datasets"
    data.mkdir(parents=True)
    write(data / "known.extxyz", make_alloys(8))
    write(data / "val.extxyz", make_alloys(6, seed=1))
    write(data / "hot.extxyz", simulate_exactly())
    sources = [{"path": f"{n}.extxyz", "split": s} for n, s in (("val", "val"), ("hot", "test"))]
    sources.append({"path": "known.extxyz", "split": "train"})
    content = {"description": "Alloys, and what they become when hot", "sources": sources}
    (data / "alloys.yaml").write_text(yaml.safe_dump(content))
    (folder / "program.py").write_text(PROGRAM)
    experiment = folder / "workflows/experiments/mace/loop.yaml"
    experiment.parent.mkdir(parents=True)
    experiment.write_text(yaml.safe_dump(make_experiment(folder)))
    for part in ("Snakefile", "workflows/rules", "workflows/report"):
        (folder / part).symlink_to(REPOSITORY / part)
    (folder / "workflows/config.yaml").write_text("experiments: [mace/loop]\n")
    return folder / "results/mace/loop"


def make_experiment(folder):
    command = f"{sys.executable} program.py {{structure}} {{label}} {folder / 'calls'}"
    return {
        "description": "A loop with a cheap potential",
        "plugin": "mace",
        "dataset": "alloys",
        "scale": "smoke",
        "members": 2,
        "model": MODEL,
        "graph": {"cutoff": 4.0},
        "train": {
            "epochs": 12,
            "batch_size": 4,
            "optimizer": {"name": "adam", "lr": 0.02},
            "loss": {"energy": {}, "forces": {}},
        },
        "figures": {"formats": ["png"]},
        "learn": {
            "rounds": ROUNDS,
            "per_round": PER_ROUND,
            "random": True,
            "train": {"epochs": 4, "optimizer": {"lr": 0.01}},
            "label_with": {"command": command},
            "md": [{"name": "hot", "temperature": 1200.0, **HOT}],
        },
    }


def simulate_exactly():
    """Return labelled frames of exact dynamics of the first known alloy at 1200 K."""
    atoms, frames = make_alloys(1)[0], []
    atoms.calc = EMT()
    rng = np.random.default_rng(0)
    options = {"temperature_K": 1200, "friction": 0.02 / units.fs, "rng": rng, "fixcm": False}
    moving = Langevin(atoms, 2 * units.fs, **options)
    for _ in range(16):
        moving.run(25)
        atoms.get_stress()
        write_to = atoms.copy()
        write_to.calc = EMT()
        write_to.get_potential_energy(), write_to.get_stress()
        frames.append(write_to)
    return frames


def kill_amid_labels(words, quiet, labels):
    """Start the workflow, and end all of its processes when the first label is there."""
    first = subprocess.Popen(words, start_new_session=True, **quiet)
    end = time.monotonic() + LIMIT
    while not list(labels.glob("[0-9]*")) and first.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    said = first.communicate()[1].decode()
    time.sleep(1)  # programs end after those who have called them
    kept = {path: (path.stat().st_ino, path.read_bytes()) for path in labels.glob("[0-9]*")}
    assert kept, said
    return kept


@exhaustive
@pytest.mark.slow
def test_a_loop_is_killed_and_goes_on_to_its_figure(tmp_path):
    home = write_loop(tmp_path)
    words = [start_programs() / "snakemake", "--cores", "2"]
    quiet = {"cwd": tmp_path, "env": make_environment(tmp_path), "stderr": subprocess.PIPE}
    kept = kill_amid_labels(words, quiet, home / "round_1/labels")
    subprocess.run([*words, "--unlock"], **quiet, check=True)
    done = subprocess.run([*words, "--rerun-incomplete"], **quiet, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    for path, known in kept.items():
        assert (path.stat().st_ino, path.read_bytes()) == known
    names = [f"{arm}_{n}" for arm in ("round", "random") for n in range(1, ROUNDS + 1)]
    assert all(len(list((home / n / "labels").glob("[0-9]*"))) == PER_ROUND for n in names)
    n_calls = len((tmp_path / "calls").read_text().splitlines())
    assert n_calls <= len(names) * PER_ROUND + 2  # two were under way at most
    again = subprocess.run([*words, "-n"], **quiet, stdout=subprocess.PIPE, check=True)
    assert "Nothing to be done" in (again.stdout + again.stderr).decode()
    check_figure(home)
    check_picks(home / "round_1")


def check_figure(home):
    """The table of the figure holds the errors of the metrics, and the data grow by the labels."""
    assert (home / "figures/rounds.png").stat().st_size > 0
    with (home / "figures/rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows if row["picks"] == "at random"] == [
        "base",
        *(f"random_{n}" for n in range(1, ROUNDS + 1)),
    ]
    counts = [8 + n * PER_ROUND for n in range(ROUNDS + 1)]
    assert [int(row["train_structures"]) for row in rows] == 2 * counts
    for row in rows:
        if row["picks"] == "at random" and row["variant"] != "base":
            metrics = json.loads((home / row["variant"] / "metrics.json").read_text())
            mae = metrics["splits"]["test"]["quantities"]["forces"]["mae"]
            assert float(row["forces_mae_meV_per_A"]) == pytest.approx(1000 * mae, rel=1e-5)


def check_picks(home):
    """Labels are the exact ones of what was picked."""
    for number, pick in enumerate(read(home / "picks.extxyz", ":")):
        label = read(home / f"labels/{number}.extxyz")
        pick.calc = EMT()
        assert label.get_potential_energy() == pytest.approx(pick.get_potential_energy(), abs=1e-6)
        assert np.allclose(label.get_forces(), pick.get_forces(), atol=1e-6)
