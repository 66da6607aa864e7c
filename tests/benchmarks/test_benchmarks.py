"""Reports of benchmarks hold what `keys.yaml` says: those of trials, and those under `results`.

Oracle: the list, which people read and write.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.__main__ import list_benchmarks
from processes import make_environment
from tiers import exhaustive

HERE = Path(__file__).parent
FRAME = {"name", "ours_s", "peer", "peer_s", "ratio", "threads", "hardware", "versions"}
KEYS = {
    name: FRAME | set(figures)
    for name, figures in yaml.safe_load((HERE / "keys.yaml").read_text()).items()
}
RESULTS = sorted((HERE / "results").glob("*.json"))


def test_each_benchmark_lists_its_figures():
    assert [path.stem for path in list_benchmarks()] == sorted(KEYS)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_each_result_is_one_that_a_benchmark_writes(path):
    report = json.loads(path.read_text())
    name = report["name"]
    assert path.stem.startswith(f"{name}_")
    assert report.keys() - {"run"} <= KEYS[name]  # `run`: how `make gpu` has measured
    assert report["hardware"]
    assert report["versions"]


@exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("path", list_benchmarks(), ids=lambda path: path.stem)
def test_a_trial_prints_its_report(path):
    done = subprocess.run(
        [sys.executable, path, "--small", "--threads", "1"],
        env=make_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["name"] == path.stem
    assert report.keys() == KEYS[path.stem]
    assert report["hardware"]
    assert report["versions"]
    CHECKS.get(path.stem, bool)(report)


def check_dynamics(report):
    """A run over ranks that is killed goes on to the bit."""
    assert report["same_bits"]
    assert report["energy_difference"] < 1e-6


def check_training(report):
    """Ranks that divide structures find the losses of one."""
    assert report["loss_difference"] < 1e-10


def check_amorphous(report):
    """Ranks divide all atoms and edges, and find the losses and the matrices of one."""
    assert report["max_difference"] < 1e-10
    assert report["loss_difference"] < 1e-10
    runs = report["runs"]
    assert [(run["method"], run["ranks"]) for run in runs] == [
        ("auto", 1), ("auto", 2), ("slices", 2),
    ]  # fmt: skip
    assert len(set(runs[0]["losses"])) == 2
    assert all(sum(run["own"]) == report["atoms"] for run in runs)
    assert all(sum(run["edges"]) == report["edges"] for run in runs)
    assert {cut["method"] for cut in report["cuts"]} > {"slices", "metis", "low_nn"}


CHECKS = {
    "domain_dynamics": check_dynamics,
    "domain_training": check_training,
    "esp_amorphous": check_amorphous,
}
"""Promises that figures of a report show."""
