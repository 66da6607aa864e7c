"""Labels outlive a kill. Oracle: inodes and bytes of the files, and the calls of the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import yaml
from ase.io import write

from pipeline_core.example_data import make_alloys
from pipeline_core.testing.projects import write_project
from workflows.toy import REPOSITORY, make_environment

TIME_LIMIT = 120  # seconds
N_PICKS = 4
PROGRAM = """
import sys, time
from ase.calculators.emt import EMT
from ase.io import read, write
with open(sys.argv[3], "a") as file:
    file.write("called\\n")
atoms = read(sys.argv[1])
atoms.calc = EMT()
atoms.get_potential_energy(), atoms.get_stress()
time.sleep(1)
write(sys.argv[2], atoms)
"""


def write_picks(folder):
    """Write a project whose first round has picked; return where its labels go."""
    write_project(folder, "mace", {})
    (folder / "program.py").write_text(PROGRAM)
    words = f"{sys.executable} program.py {{structure}} {{label}} {folder / 'calls'}"
    path = folder / "workflows/experiments/mace/conformance.yaml"
    learn = {
        "rounds": 1,
        "per_round": N_PICKS,
        "label_with": {"command": words},
        "md": [{"name": "hot"}],
    }
    content = yaml.safe_load(path.read_text()) | {"members": 2, "learn": learn}
    path.write_text(yaml.safe_dump(content))
    for part in ("Snakefile", "workflows/rules", "workflows/report"):
        (folder / part).symlink_to(REPOSITORY / part)
    (folder / "workflows/config.yaml").write_text("experiments: [mace/conformance]\n")
    home = folder / "results/mace/conformance/round_1"
    home.mkdir(parents=True)
    picks = make_alloys(N_PICKS)
    for atoms in picks:
        atoms.calc = None
    write(home / "picks.extxyz", picks)
    return home / "labels"


@pytest.mark.slow
def test_a_killed_workflow_goes_on_without_a_lost_label(tmp_path):
    labels = write_picks(tmp_path)
    targets = [str((labels / f"{i}.extxyz").relative_to(tmp_path)) for i in range(N_PICKS)]
    words = [sys.executable, "-m", "snakemake", "--cores", "1", "--rerun-incomplete"]
    words += [*targets, "--allowed-rules", "label"]
    quiet = {"cwd": tmp_path, "env": make_environment(tmp_path), "stderr": subprocess.PIPE}
    first = subprocess.Popen(words, start_new_session=True, **quiet)
    end = time.monotonic() + TIME_LIMIT
    while len(list(labels.glob("[0-9]*"))) < 2 and first.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    said = first.communicate()[1].decode()
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in labels.glob("[0-9]*")}
    assert 2 <= len(before) < N_PICKS, said
    subprocess.run([*words[:3], "--unlock"], **quiet, check=True)
    done = subprocess.run(words, **quiet, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert len(list(labels.glob("[0-9]*"))) == N_PICKS
    for path, known in before.items():
        assert (path.stat().st_ino, path.read_bytes()) == known
    calls = len((tmp_path / "calls").read_text().splitlines())
    assert calls <= N_PICKS + 1  # one was under way
