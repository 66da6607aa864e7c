"""A machine without a C compiler: plain PyTorch calculates, with one warning."""

from pathlib import Path

import pytest
import yaml

from processes import start
from tiers import exhaustive

ROOT = Path(__file__).parents[2]

KERNELS = """
import torch
from pipeline_kernels.equivariant.so2 import Layout, from_edges
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.message import Segments
from pipeline_kernels.equivariant.tensor_product import ProductPlan, tensor_product
from pipeline_kernels.tree import Node, TreeShape, contract
shape = TreeShape((2, 2), (Node(0, 1, 1),))
for dtype in (torch.float32, torch.float64):
    value = contract(torch.ones(4, 5, dtype=dtype), torch.ones(4, dtype=dtype), shape)
    assert value.tolist() == [4.0] * 5
segments, plan = Segments.of(torch.tensor([0, 0]), 1), ProductPlan.of("0e", 0, "0e")
h, Y, w = torch.ones(1, 1, 3), torch.ones(2, 1), torch.ones(2, 1, 3)
frames = compute_edge_frames(torch.eye(3), 0)
assert (from_edges(torch.ones(3, 1, 2), frames, Layout(0, 0)) == 1).all()
assert torch.allclose(tensor_product(h, Y, w, segments, segments, plan), torch.tensor(2.0))
"""

SMOKE = """
import sys
from pipeline_core.cli.app import app
folders = ["--workflows", sys.argv[1], "--results", sys.argv[2]]
app(["data", "--dataset", sys.argv[3], *folders], standalone_mode=False)
for stage in ("graph", "partition", "train"):
    app([stage, "--experiment", "mace/smoke", *folders], standalone_mode=False)
"""


@pytest.fixture
def run_without_compiler(tmp_path):
    """Runs a script where no program is found by its name and nothing has been compiled before."""

    def run(script: str, *args: object) -> str:
        cache, programs = tmp_path / "cache", tmp_path / "programs"
        cache.mkdir()
        programs.mkdir()
        places = {"PATH": str(programs), "PIPELINE_KERNELS_CACHE": str(cache)}
        result = start(["-c", script, *args], CC="cc", **places)
        assert result.returncode == 0, result.stderr
        assert not list(cache.iterdir())
        return result.stderr

    return run


@pytest.mark.slow
def test_kernels_calculate_and_warn_once(run_without_compiler):
    errors = run_without_compiler(KERNELS)
    assert errors.count("Install a C compiler") == 1
    assert errors.count("times as long") == 1


@exhaustive
def test_mace_trains_by_the_command_line_and_warns_once(run_without_compiler, tmp_path):
    experiment = yaml.safe_load((ROOT / "workflows/experiments/mace/smoke.yaml").read_text())
    folders = ROOT / "workflows", tmp_path / "project"
    errors = run_without_compiler(SMOKE, *folders, experiment["dataset"])
    assert errors.count("Install a C compiler") == 1
    assert list(tmp_path.glob("project/**/model.pt"))
