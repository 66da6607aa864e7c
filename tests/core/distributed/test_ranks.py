"""Which rank a process is, from the variables that launchers set.

Oracle: the documentation of torchrun, srun (section "Output environment variables") and Hydra.
"""

from pathlib import Path

import pytest
import torch

from pipeline_core.distributed import rendezvous, world
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.world import World, find_world, may_be_launched
from processes import find_free_port, start

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
SBATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
SRUN = SBATCH | {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, World()),
        (TORCHRUN, World("torchrun", 3, 4)),
        (TORCHRUN | SRUN, World("torchrun", 3, 4)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, World()),
        (SRUN, World("srun", 5, 8)),
        (SBATCH, World()),
        (SBATCH | {"SLURM_STEP_NUM_TASKS": "1"}, World()),
        (HYDRA, World("mpiexec", 1, 2)),
        (OPEN_MPI, World("mpiexec", 1, 2)),
        (HYDRA | {"PMI_RANK": "0", "PMI_SIZE": "1"}, World()),
        (HYDRA | SBATCH, World("mpiexec", 1, 2)),
        (HYDRA | SRUN, World("mpiexec", 1, 2)),  # helpers of mpiexec started by srun
        ({"PMI_RANK": "5", "PMI_SIZE": "8"} | SRUN, World("srun", 5, 8)),  # srun --mpi=pmi2
    ],
)
def test_world(environment, expected):
    assert find_world(environment) == expected


def test_a_process_on_its_own_needs_nobody(tmp_path):
    with connect_ranks("cpu", tmp_path) as ranks:
        assert ranks.is_rank_zero
        assert ranks.size == 1
        assert ranks.device == torch.device("cpu")
        assert ranks.all_reduce_sum(torch.ones(2)).tolist() == [1, 1]
        assert ranks.broadcast("x") == "x"
        assert ranks.gather("x") == ["x"]
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPU")
def test_a_missing_gpu_is_named(tmp_path):
    with pytest.raises(ValueError, match="no GPU is visible"), connect_ranks("cuda", tmp_path):
        pass
    with connect_ranks("auto", tmp_path) as ranks:
        assert ranks.device.type == "cpu"


@pytest.mark.parametrize(
    "names",
    [
        "SLURM_PROCID SLURM_STEP_NUM_TASKS",
        "PMI_RANK PMI_SIZE",
        "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE",
    ],
)
@pytest.mark.mpi
def test_variables_that_are_left_over_are_recognised_at_once(tmp_path, names):
    program = (
        "import sys; from pathlib import Path\n"
        "from pipeline_core.distributed.ranks import connect_ranks\n"
        "with connect_ranks('cpu', Path(sys.argv[1])): pass\n"
    )
    rank, size = names.split()
    done = start(["-c", program, tmp_path], **{rank: "0", size: "2"})
    assert done.returncode == 1
    assert f"{rank}=0 and {size}=2 mean" in done.stderr
    assert f"unset them: unset {rank} {size}" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "environment"),
    [("torchrun", {}), ("srun", {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"})],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_do_not_come_are_named(tmp_path, monkeypatch, launcher, environment, rank):
    for name in ("_PATIENCE", "_DOUBT"):
        monkeypatch.setattr(rendezvous, name, 0.4)
    monkeypatch.setattr(rendezvous, "_NOTICE", 0.1)  # of each try to connect, too
    names = {"torchrun": ("RANK", "WORLD_SIZE"), "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")}
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": find_free_port()}
    numbers = dict(zip(names[launcher], (str(rank), "3"), strict=True))
    for name, value in (environment | numbers | (port if launcher == "torchrun" else {})).items():
        monkeypatch.setenv(name, value)
    missing = "of 3 ranks these have not come: 1, 2" if rank == 0 else "rank 0 has not"
    with (
        pytest.raises(ValueError, match=missing) as raised,
        connect_ranks("cpu", tmp_path),
    ):
        pass
    assert f"unset {' '.join(names[launcher])}" in str(raised.value)


def test_what_ranks_wait_for_is_said_once_before_it_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    times = iter([0.0, 5.0, 11.0, 12.0, 301.0])
    monkeypatch.setattr(rendezvous.time, "monotonic", lambda: next(times))
    waiting = rendezvous._Waiting(World("torchrun", 0, 2))
    for said in ("", "rank 1 has not come within 11 s, waiting; RANK=0", ""):
        waiting.check("rank 1 has not come")
        assert capsys.readouterr().err.partition(" and ")[0] == said
    with pytest.raises(ValueError, match="rank 1 has not come within 301 s"):
        waiting.check("rank 1 has not come")


def test_a_task_of_srun_descends_from_its_daemon(monkeypatch):
    def claim(ancestors):
        monkeypatch.setattr(world, "_list_ancestors", lambda: iter(ancestors))
        return may_be_launched(World("srun", 0, 2))

    namespace = Path("/proc/self/ns/pid").readlink().name
    monkeypatch.setattr(world, "_FIRST_PID_NAMESPACE", int(namespace[5:-1]))
    assert claim(["bash", "slurmstepd"])
    assert not claim(["bash", "sshd"])
    monkeypatch.setattr(world, "_FIRST_PID_NAMESPACE", 1)  # in a container nobody can tell
    assert claim(["bash"])


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("torch", "ranks.read_versions = lambda: {'torch': f'2.{rank}'}"),
        ("source of the engine", "ranks.hash_source = lambda: f'2.{rank}'"),
    ],
)
def test_ranks_of_different_software_do_not_compute_together(tmp_path, name, change):
    program = (
        "import sys; from pathlib import Path\n"
        "from pipeline_core.distributed import ranks\n"
        "rank = ranks.find_world().rank\n"
        f"{change}\n"
        "with ranks.connect_ranks('cpu', Path(sys.argv[1])): print('connected')\n"
    )
    done = start(["-c", program, tmp_path], n_ranks=2)
    assert done.returncode != 0
    assert done.stdout == ""
    assert f"has another run than rank 0: {name} 2.1 instead of 2.0; give all nodes" in done.stderr


@pytest.mark.mpi
def test_ranks_take_the_threads_of_openmp(tmp_path):
    """Snakemake lets MKL have all threads of a job, which its ranks have to share."""
    program = (
        "import sys, torch; from pathlib import Path\n"
        "from pipeline_core.distributed.ranks import connect_ranks\n"
        "with connect_ranks('cpu', Path(sys.argv[1])) as ranks:\n"
        "    threads = ranks.gather(torch.get_num_threads())\n"
        "    print(threads if ranks.is_rank_zero else '', end='')\n"
    )
    many = {"MKL_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4", "OMP_NUM_THREADS": "1"}
    assert start(["-c", program, tmp_path], n_ranks=2, **many).stdout == "[1, 1]"
