"""Passes of SO(2) convolutions in C: what Python hands over, and what threads may change."""

import ctypes

import torch

from kernels.equivariant.so2_case import Case
from pipeline_kernels.equivariant.so2 import Layout, cpu, passes
from pipeline_kernels.native import compute_size


def test_python_writes_a_pass_as_c_reads_it():
    """Products, sums and tables go to C as lists: a size that differs shifts all that follow."""
    library = cpu.load(Layout(2, 2), torch.float32)
    kinds = passes.NativePass, passes.Step, passes.Sum, passes.NativeTable
    assert compute_size(library, "count_pass_bytes") == sum(map(ctypes.sizeof, kinds))


def test_threads_change_no_bit(monkeypatch):
    """Sums over edges, too, although each thread adds up those of its own edges."""
    monkeypatch.setattr(cpu, "TILE_BYTES", 2**14)
    monkeypatch.setattr(passes, "PASS_BYTES", 2**19)  # of several passes
    case = Case.of(Layout(3, 3), 30, 2000, (8, 4, 8), 8, torch.float32)
    leaves = [x.requires_grad_() for x in case.operands]
    before = torch.get_num_threads()
    results = []
    try:
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            outputs = case.result(*leaves)
            gradients = torch.autograd.grad([x.square().sum() for x in outputs], leaves)
            results.append([*outputs, *gradients])
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
