"""Products of a tall matrix: C and what torch multiplies, in every order of derivatives.

Oracles: torch's product of matrices in double precision; finite differences.
"""

import pytest
import torch
from hypothesis import strategies as st

from kernels.contract import Call, KernelContract
from pipeline_kernels.message.tall import multiply_tall, op


class TestTall(KernelContract):
    folder = "message/tall"
    tolerances = {torch.float32: 1e-5, torch.float64: 1e-13}
    options = {
        "n_rows": [50, 1, 700],  # of 700 some products are past the caches
        "depth": [12, 1, 64],
        "width": [20, 1, 130, 320, 640],  # 130 are no whole vectors
    }
    few, many = {"n_rows": 5, "depth": 3, "width": 4}, {"n_rows": 900, "depth": 64, "width": 640}
    empty = {"n_rows": 0}
    random = {
        "n_rows": st.integers(0, 60),
        "depth": st.integers(1, 40),
        "width": st.integers(1, 80),
    }
    mixed = 0.02
    refused = [
        (1, lambda A: A.T, r"A: expected \(K, N\) for x of \(n, K\), got \(20, 12\)"),
        (0, lambda x: x[0], r"got \(12, 20\) for \(12,\)"),
    ]

    @pytest.fixture(autouse=True)
    def every_size(self, monkeypatch):
        """Small products, too, are those of the operator."""
        monkeypatch.setattr(op, "MIN_SIZE", 0)

    def draw(self, generator, n_rows, depth, width):
        shapes = (n_rows, depth), (depth, width)
        x, A = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
        return Call(multiply_tall, torch.matmul, [x, A])


def test_small_products_are_those_of_torch():
    x, A = torch.randn(30, 12), torch.randn(12, 20)
    with torch.profiler.profile() as seen:
        multiply_tall(x, A)
    assert "pipeline_kernels::tall_product" not in [event.name for event in seen.events()]
