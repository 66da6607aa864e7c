"""Writes `contraction_mace.npz`: what `SymmetricContraction` of mace-torch gives.

Run once with mace-torch 0.3.16 and e3nn 0.4.4 (which needs TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1):

    python tests/kernels/equivariant/make_contraction_mace.py
"""

from pathlib import Path

import numpy as np
import torch
from e3nn import o3
from mace.modules.symmetric_contraction import SymmetricContraction

CASES = {"a": ("0e", 3), "b": ("0e+1o", 3), "c": ("0e+1o+2e", 2), "d": ("1o+2e", 1)}
N_CHANNELS, N_ELEMENTS = 2, 3
ELEMENT = torch.tensor([2, 0, 0, 2, 2])  # none of element 1


def multiply_irreps(irreps: str) -> str:
    return "+".join(f"{N_CHANNELS}x{irrep}" for irrep in irreps.split("+"))


def make_case(irreps_out: str, correlation: int) -> dict[str, np.ndarray | str | int]:
    module = SymmetricContraction(
        irreps_in=multiply_irreps("0e+1o+2e+3o"),
        irreps_out=multiply_irreps(irreps_out),
        correlation=correlation,
        num_elements=N_ELEMENTS,
        use_reduced_cg=False,
    )
    features = torch.randn(len(ELEMENT), N_CHANNELS, 16)
    result = module(features, torch.nn.functional.one_hot(ELEMENT, N_ELEMENTS).to(features))
    widths = [N_CHANNELS * irrep.dim for _, irrep in o3.Irreps(irreps_out)]
    outputs = [
        part.view(len(ELEMENT), N_CHANNELS, -1).mT for part in result.detach().split(widths, dim=1)
    ]
    weights = [  # with the most factors first there, with the fewest first here
        weight.detach()
        for contraction in module.contractions
        for weight in [*contraction.weights[::-1], contraction.weights_max]
    ]
    return {
        "irreps_out": irreps_out,
        "correlation": correlation,
        "element": ELEMENT.numpy(),
        "features": features.mT.numpy(),
        "weights": torch.cat(weights, 1).numpy(),
        "outputs": torch.cat(outputs, 1).numpy(),
    }


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    arrays = {
        f"{name}_{key}": value
        for name, arguments in CASES.items()
        for key, value in make_case(*arguments).items()
    }
    np.savez_compressed(Path(__file__).with_name("contraction_mace.npz"), **arrays)
