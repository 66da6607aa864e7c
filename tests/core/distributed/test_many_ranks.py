"""Several ranks compute what one computes, whatever launches them."""

import json
import re
import subprocess
import sys

import pytest
import torch

import toy_potential as toy
from forked_ranks import run_on_ranks
from pipeline_core.training.model_file import load_model
from pipeline_core.training.trainer import train_run
from processes import make_environment, start
from records import assert_same_weights, read_history, read_weights
from tiers import exhaustive

pytestmark = pytest.mark.mpi

PROGRAM = ["-m", "toy_potential"]
SETTINGS = {
    "train": {"ema_decay": 0.9, "clip_norm": 0.5, "batch_size": 3, "checkpoint_steps": 2},
    "model": {"missing": True, "n_train": 13},  # the last window has one sample: ranks without work
    "partition": {"capacity": 30.0},
}


def mpiexec(folder, n, device="cpu"):
    return start([*PROGRAM, folder, device], n)


def forked(folder, n):
    return run_on_ranks("toy_potential", [folder, "cpu"], n)


def torchrun(folder, n):
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
    return start([*launcher, *PROGRAM, folder, "cpu"])


def srun(folder, n):
    """What srun does, as far as a process can see it."""
    step = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(n),
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, *PROGRAM, str(folder), "cpu"],
            env=make_environment(SLURM_PROCID=str(rank), **step),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(n)
    ]
    errors = "".join(process.communicate()[1] for process in processes)
    code = max(abs(process.returncode) for process in processes)
    return subprocess.CompletedProcess(PROGRAM, code, stderr=errors)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = toy.train(tmp_path_factory.mktemp("alone"), **SETTINGS)
    return read_weights(run), read_history(run)


@pytest.mark.parametrize(
    ("launch", "n"),
    [
        (forked, 3),
        (mpiexec, 2),
        *(pytest.param(*case, marks=exhaustive) for case in ((torchrun, 2), (srun, 3))),
    ],
)
def test_any_number_of_ranks_equals_one(alone, tmp_path, launch, n):
    run = toy.make_run(tmp_path, **SETTINGS)
    done = launch(tmp_path, n)
    assert done.returncode == 0, done.stderr
    lines = read_history(run)
    assert_same_weights(read_weights(run), alone[0], rtol=1e-9, atol=1e-11)
    assert len(lines) == len(alone[1]) == 3
    for ours, expected in zip(lines, alone[1], strict=True):
        for key in ("train", "val", "mae", "grad_norm", "lr", "epoch"):
            assert ours[key] == pytest.approx(expected[key], rel=1e-9), key
        assert expected["balance"] == 1
        assert 1 / n < ours["balance"] < 1
    assert json.loads(load_model(run.model)["provenance"])["ranks"] == n
    assert [path.name for path in run.state.iterdir()] == ["last.pt"]


def test_ranks_continue_what_one_has_begun(alone, tmp_path):
    shorter = SETTINGS | {"train": SETTINGS["train"] | {"epochs": 2}}
    train_run(toy.make_run(tmp_path, **shorter))
    run = toy.make_run(tmp_path, **SETTINGS)
    done = forked(tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert "afresh" not in done.stderr
    assert_same_weights(read_weights(run), alone[0], rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_a_training_of_a_stopped_rank_ends_and_continues_bit_for_bit(tmp_path):
    """Oracle: the weights of a training that nothing has stopped."""
    settings = SETTINGS | {"train": SETTINGS["train"] | {"checkpoint_steps": 1}}
    run = toy.make_run(tmp_path / "stopped", **settings)
    fate = {"TOY_FATE": "9 stops 1", "PIPELINE_SILENCE": "2"}
    done = run_on_ranks("toy_potential", [tmp_path / "stopped", "cpu"], 2, **fate)
    assert done.returncode != 0
    assert re.search(r"error: rank 1 on \S+ \(pid \d+\) has not answered for 2 s", done.stderr)
    # Batches are made ahead: it may stop before it has named the step.
    assert re.search(r"its last status: (step \d of )?epoch 2; start", done.stderr)
    assert not run.model.exists()
    whole = toy.make_run(tmp_path / "whole", **settings)
    for folder in ("stopped", "whole"):
        done = run_on_ranks("toy_potential", [tmp_path / folder, "cpu"], 2)
        assert done.returncode == 0, done.stderr
    assert_same_weights(read_weights(run), read_weights(whole))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 2])  # two ranks may share one GPU
def test_gpus_equal_the_cpu(alone, tmp_path, n):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    run = toy.make_run(tmp_path, **SETTINGS)
    done = mpiexec(tmp_path, n, "cuda")
    assert done.returncode == 0, done.stderr
    assert_same_weights(read_weights(run), alone[0], rtol=1e-7, atol=1e-9)
