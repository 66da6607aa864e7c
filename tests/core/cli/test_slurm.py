"""`doctor --slurm` against commands that answer as clusters do; on a real one in tests/workflows.

Oracle: the formats of sinfo(1), scontrol(1) and sacctmgr(1).
"""

import pytest

from pipeline_core.cli import slurm
from pipeline_core.cli.slurm import Site, count_gpus, examine_cluster, parse_time

ANSWERS = {
    "scontrol ping": "Slurmctld(primary) at head is UP\n",
    "scontrol show": "AccountingStorageType   = accounting_storage/slurmdbd\n",
    "sacct": "",
    "sacctmgr": "physics\nchemistry\n",
    "sinfo": "cpu*|up|1-00:00:00|190000|48|(null)|100\ngpu|up|12:00:00|500000|64|gpu:a100:4|8\n",
    "srun --mpi=list": "MPI plugin types are...\n\tnone\n\tpmix\n",
    "srun": "node7\nseen\nimported\n",
}


@pytest.fixture
def examine(monkeypatch, tmp_path):
    """Examines a cluster that gives these answers, None for a failure."""

    def run(changed=(), **variables):
        answers = ANSWERS | dict(changed)

        def ask(*command):
            keys = (" ".join(command[:2]), command[0])
            answer = next(answers[key] for key in keys if key in answers)
            return ("", f"{command[0]}: refused") if answer is None else (answer, "")

        monkeypatch.setattr(slurm, "_call", ask)
        for name, value in variables.items():
            monkeypatch.setenv(f"PIPELINE_{name}", value)
        found = {f.name.strip(): f for f in examine_cluster(tmp_path / "results")}
        return {name: f.cure for name, f in found.items() if not f.detail}

    return run


@pytest.mark.parametrize(
    ("changed", "variables", "name", "cure"),
    [
        ({"scontrol ping": None}, {}, "controller", "load the module of Slurm"),
        ({"scontrol show": ""}, {}, "accounting", "jobs are watched by squeue"),
        ({"sacct": None}, {}, "accounting", "sacct: refused"),
        ({}, {"ACCOUNT": "art"}, "account", "export PIPELINE_ACCOUNT=chemistry"),
        ({}, {"PARTITION": "fast"}, "partition", "export PIPELINE_PARTITION= one of cpu, gpu"),
        ({"sinfo": "cpu|up|1:00:00|9000|4|(null)|1\n"}, {}, "partition", "no default partition"),
        ({"sinfo": "cpu*|down|1:00:00|9000|4|(null)|1\n"}, {}, "partition", "cpu* is down"),
        ({}, {"HOURS": "48"}, "time limit", "export PIPELINE_HOURS=24"),
        ({}, {"RANKS": "30"}, "nodes", "less than 240000 MB and 240 cores"),
        ({}, {"GPU_PARTITION": "gpu", "GPUS": "8"}, "GPUs", "export PIPELINE_GPUS=4"),
        ({}, {"GPU_PARTITION": "cpu"}, "GPUs", "0 GPUs a node, less than 1"),
        ({}, {"NODES": "200"}, "training", "export PIPELINE_NODES=100"),
        ({"srun --mpi=list": None}, {"RANKS": "2"}, "ranks", "srun: refused"),
        ({"srun": None}, {}, "job", "srun: refused"),
        ({"srun": "node7\nimported\n"}, {}, "results", "is not there on node7"),
        ({"srun": "node7\nseen\n"}, {}, "Python", "does not work on node7"),
    ],
)
def test_each_problem_has_its_cure(examine, changed, variables, name, cure):
    assert cure in examine(changed, **variables)[name]


def test_what_a_cluster_says_is_read(examine):
    assert examine() == {}  # one that gives all has no problem
    limits = {"infinite": None, "30:00": 1800, "12:00:00": 43200, "2-00:00:00": 172800}
    assert {text: parse_time(text) for text in limits} == limits
    gpus = {"(null)": 0, "gpu": 1, "gpu:4": 4, "gpu:a100:4(S:0-1),nvme:1": 4, "gpu:a:2,gpu:b:2": 4}
    assert {gres: count_gpus(gres) for gres in gpus} == gpus
    with pytest.raises(ValueError, match="PIPELINE_NODES=two: expected a whole number"):
        Site.read({"PIPELINE_NODES": "two"})
