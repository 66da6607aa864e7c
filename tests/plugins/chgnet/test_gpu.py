"""A training step on a GPU. Oracle: the same step on the CPU, whose kernels are in C."""

import pytest
import torch

from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions

MODELS = {
    "derivatives": CHGNetOptions(),
    "heads": CHGNetOptions(heads="pair", updates="parallel"),
}


def train(options, batch, device, *, autocast=False):
    """Return what a model predicts and the gradients of a loss, on the CPU."""
    torch.manual_seed(0)
    model = CHGNet(options, CHGNetGraphOptions()).to(device).train()
    with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
        outputs = model({name: tensor.to(device) for name, tensor in batch.items()})
    sum(output.double().square().sum() for output in outputs.values()).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: x.detach().cpu().double() for name, x in (outputs | gradients).items()}


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "autocast", "tolerance"),
    [("derivatives", False, 1e-4), ("heads", False, 1e-4), ("heads", True, 0.1)],
)
def test_a_step_on_a_gpu_is_that_on_the_cpu(name, autocast, tolerance, batch_of, crystal):
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    batch = batch_of([crystal], torch.float32)
    exact = train(MODELS[name], batch, "cpu")
    result = train(MODELS[name], batch, "cuda", autocast=autocast)
    assert result.keys() == exact.keys()
    for key, value in exact.items():  # small ones are differences of numbers of order 1
        assert (result[key] - value).norm() <= tolerance * (value.norm() + 0.01), key
