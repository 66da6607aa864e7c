"""Training and inference on a GPU. Oracle: the same on the CPU, whose kernels are in C."""

import pytest
import torch

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.testing.potentials import build_batch
from pipeline_core.batch import move_to_device
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions
from plugins.test_compiled import make_structures

GRAPH = GraphOptions(cutoff=4.5)
NETWORKS = {
    "default": {},
    "correlation 3": {"correlation": 3, "channels": 32},
    "more degrees": {"max_l": 2, "channels": 16, "first_interaction": "plain"},
    "odd channels": {"channels": 5, "normalization": "density", "pair_repulsion": True},
}


def train(options, dtype, device):
    """Return what a network predicts and the gradients of a loss, on the CPU."""
    torch.manual_seed(0)
    network = MACE(MACEOptions(**options), Facts(("Al", "Cu", "Ag"), 14.0), GRAPH).to(dtype)
    batch = build_batch(make_structures(), GRAPH, dtype)
    network, batch = network.to(device).train(), move_to_device(batch, torch.device(device))
    outputs = network(batch)
    sum(output.double().square().sum() for output in outputs.values()).backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    with torch.no_grad():
        inferred = {f"inferred {name}": x for name, x in network.eval()(batch).items()}
    actual = outputs | gradients | inferred
    return {name: x.detach().cpu().double() for name, x in actual.items()}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_on_a_gpu_is_that_on_the_cpu(name, dtype):
    exact = train(NETWORKS[name], torch.float64, "cpu")
    result = train(NETWORKS[name], dtype, "cuda")
    assert result.keys() == exact.keys()
    tolerance = 2e-4 if dtype == torch.float32 else 1e-10
    for key, value in exact.items():  # small ones are differences of numbers of order 1
        assert (result[key] - value).norm() <= tolerance * (value.norm() + 0.01), key
