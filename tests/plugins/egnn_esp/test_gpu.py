"""A training step on a GPU. Oracle: the same step on the CPU, whose kernels are in C."""

import pytest
import torch

from pipeline_core.batch import move_to_device
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.options import ESPOptions
from plugins.egnn_esp import made_up

BASIS = Basis({"H": (0,), "O": (0, 0, 1)})
CUTOFF = 4.0


def train(options, dtype, device):
    """Return what a network predicts and the gradients of a loss, on the CPU."""
    torch.manual_seed(0)
    network = Network(ESPOptions(layers=2, **options), BASIS, CUTOFF).to(dtype).to(device)
    batch = made_up.collate_samples(made_up.pack_grid("OHH", (3, 2, 2), CUTOFF), dtype=dtype)
    batch = move_to_device(batch, torch.device(device))
    outputs = network(batch)
    sum(output.double().square().sum() for output in outputs.values()).backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {name: x.detach().cpu().double() for name, x in (outputs | gradients).items()}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("parity", [False, True])
def test_a_step_on_a_gpu_is_that_on_the_cpu(parity, dtype):
    exact = train({"parity": parity}, torch.float64, "cpu")
    result = train({"parity": parity}, dtype, "cuda")
    assert result.keys() == exact.keys()
    tolerance = 2e-4 if dtype == torch.float32 else 1e-10
    for key, value in exact.items():  # small ones are differences of numbers of order 1
        assert (result[key] - value).norm() <= tolerance * (value.norm() + 0.01), key
