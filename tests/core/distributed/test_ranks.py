"""Which rank a process is, from the variables that launchers set.

Oracle: the documentation of torchrun, srun (section "Output environment variables") and Hydra.
"""

import pytest
import torch

from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.distributed.world import World, find_world
from processes import start

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
SBATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
SRUN = SBATCH | {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "world"),
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
def test_world(environment, world):
    assert find_world(environment) == world


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
