"""The same workflow on a real Slurm with two nodes: ranks by srun, logs of failures, time limits.

The oracle is Slurm itself: it says on which node a rank runs and kills a job at its time limit.
"""

from __future__ import annotations

import pytest
from workflows.slurm_cluster import missing, slurm_cluster
from workflows.toy import snakemake

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

# A cluster without accounting is asked for its queue, and soon.
POLLING = (
    "--profile", "slurm", "--latency-wait", "5", "--slurm-status-command", "squeue",
    "--slurm-init-seconds-before-status-checks", "1",
)  # fmt: skip
PARTITION = "results/toy/first/base/partition.h5"
MODEL = "results/toy/first/base/model.pt"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Variables of a running cluster."""
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as variables:
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
    words = [*POLLING, "--retries", "0", MODEL]
    text = snakemake(fresh, *words, ok=False, PIPELINE_GPUS="0", **cluster)
    assert "thirteen neurons bring bad luck; take twelve" in text


def test_a_job_stopped_by_its_time_limit_continues_where_it_was(fresh, cluster):
    path = fresh / "workflows/experiments/toy/first.yaml"
    # Three epochs of 25 s do not fit into the shortest time limit that Slurm knows, one minute.
    path.write_text(path.read_text().replace("width: 4", "width: 25"))
    snakemake(fresh, PARTITION)
    words = [MODEL, *POLLING, "--set-resources", "train:runtime=1"]
    snakemake(fresh, *words, PIPELINE_GPUS="0", **cluster)
    state = fresh / "results/toy/first/base/state"
    jobs = [(state / f"epoch-{epoch}").read_text() for epoch in range(3)]
    assert len(set(jobs)) == 2
    assert jobs == sorted(jobs)
