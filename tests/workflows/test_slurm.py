"""The same workflow on a real Slurm with two nodes: ranks by srun, logs of failures, killed jobs.

The oracle is Slurm itself: it says on which node a rank runs, and kills jobs as at a time limit.
"""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline_core.cli.slurm import examine_cluster
from workflows.slurm_cluster import explain_missing, list_submissions, start_slurm_cluster
from workflows.toy import snakemake

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(explain_missing() is not None, reason=str(explain_missing())),
]

# The states of jobs are asked for soon.
POLLING = (
    "--profile", "slurm", "--latency-wait", "5", "--slurm-init-seconds-before-status-checks", "1",
)  # fmt: skip
PARTITION = "results/toy/first/base/partition.h5"
MODEL = "results/toy/first/base/model.pt"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Variables of a running cluster."""
    with start_slurm_cluster(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


def test_training_runs_on_two_nodes_with_two_ranks_each(fresh, cluster):
    site = {"PIPELINE_NODES": "2", "PIPELINE_GPUS": "2", "PIPELINE_PARTITION": "debug"}
    snakemake(fresh, PARTITION)
    snakemake(fresh, *POLLING, MODEL, **cluster, **site)
    state = fresh / "results/toy/first/base/state"
    assert sorted(path.read_text() for path in state.glob("rank-*")) == [
        "0 of 4 on n0", "1 of 4 on n0", "2 of 4 on n1", "3 of 4 on n1"
    ]  # fmt: skip
    log = (fresh / "results/toy/first/base/logs/train.log").read_text()
    assert log.split() == ["epochs", "3"]  # rank 0 alone speaks


def test_a_failed_job_shows_its_log(fresh, cluster):
    path = fresh / "workflows/experiments/toy/first.yaml"
    path.write_text(path.read_text().replace("width: 4", "width: 13"))
    snakemake(fresh, PARTITION)
    text = snakemake(fresh, *POLLING, "--retries", "0", MODEL, ok=False, **cluster)
    assert "thirteen neurons bring bad luck; take twelve" in text


def test_the_steps_of_small_experiments_are_one_job(fresh, cluster):
    before = len(list_submissions(cluster))
    snakemake(fresh, *POLLING, **cluster)
    (job,) = list_submissions(cluster, "State", "AllocCPUS", "ReqMem", "Timelimit")[before:]
    # Both experiments have one dataset. 17 steps of ten minutes take turns.
    assert job[1:] == ["COMPLETED", "8", "8000M", "02:50:00"]
    assert len(list((fresh / "slurm_efficiency").glob("*.csv"))) == 1


def test_doctor_finds_the_cluster_ready_and_says_what_to_change(fresh, cluster, monkeypatch):
    for name, value in {**cluster, "PIPELINE_GPUS": "9", "PIPELINE_GPU_PARTITION": "gpu"}.items():
        monkeypatch.setenv(name, value)
    findings = {f.name.strip(): f for f in examine_cluster(fresh / "results")}
    for name in ("controller", "accounting", "account", "partition", "job", "results", "Python"):
        assert findings[name].detail, findings[name].cure
    assert findings["GPUs"].cure == "4 GPUs a node, less than 9: export PIPELINE_GPUS=4"


def test_a_job_that_slurm_kills_is_sent_again_and_continues_where_it_was(fresh, cluster):
    path = fresh / "workflows/experiments/toy/first.yaml"
    path.write_text(path.read_text().replace("width: 4", "width: 25"))  # slow
    snakemake(fresh, PARTITION)
    state = fresh / "results/toy/first/base/state"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(snakemake, fresh, *POLLING, MODEL, **cluster)
        while not (state / "epoch-0").exists() and not running.done():
            time.sleep(0.2)
        # SIGTERM, then SIGKILL: the signals of a time limit, whose shortest is a minute.
        subprocess.run(["scancel", "--user=root"], env=os.environ | cluster, check=True)
        running.result()
    jobs = [(state / f"epoch-{epoch}").read_text() for epoch in range(3)]
    assert len(set(jobs)) == 2
    assert jobs[1] == jobs[2]
