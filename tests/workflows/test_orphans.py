"""A training that outlives its Snakemake keeps its lock. Oracle: the kernel."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from workflows.toy import make_environment, snakemake

TIME_LIMIT = 120  # seconds
MODEL = "results/toy/first/base/model.pt"


def wait_for_record(path):
    """Return who holds a lock, as soon as it is written."""
    end = time.monotonic() + TIME_LIMIT
    while time.monotonic() < end:
        text = path.read_text() if path.exists() else ""
        if text:
            return json.loads(text)
        time.sleep(0.05)
    raise TimeoutError(path)


@pytest.mark.slow
def test_after_an_unlock_an_orphan_is_named_and_nothing_is_written(fresh):
    experiment = fresh / "workflows/experiments/toy/first.yaml"
    experiment.write_text(experiment.read_text().replace("width: 4", "width: 999"))
    words = [sys.executable, "-m", "snakemake", "--cores", "1", MODEL]
    first = subprocess.Popen(
        words, cwd=fresh, env=make_environment(fresh), stderr=subprocess.DEVNULL
    )
    folder = fresh / "results/toy/first/base"
    pid = None
    try:
        pid = wait_for_record(folder / ".train.lock")["pid"]
        first.kill()
        first.wait()
        snakemake(fresh, "--unlock")
        before = sorted(folder.rglob("*"))
        snakemake(fresh, "--cores", "1", "--rerun-incomplete", MODEL, ok=False)
        log = (folder / "logs/train.log").read_text()
        assert f"the stage 'train' is under way by process {pid} on" in log
        assert "an orphan: what started it has ended (" in log
        assert f"end it with `kill {pid}`" in log
        assert "Traceback" not in log
        assert sorted(folder.rglob("*")) == before
    finally:
        first.kill()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
