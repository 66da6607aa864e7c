"""Kernels of Triton on a CPU: interpreted, or what operators have for GPUs alone."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pipeline_kernels
from kernels.calls import differentiate
from pipeline_kernels.eager import EagerOperator


def compute_interpreted(
    path: str, name: str, dtype: torch.dtype, chosen: Mapping[str, Any]
) -> tuple[list[Tensor], bool]:
    """Compute a case of a contract by kernels of Triton, in a process where they are interpreted.

    Returns:
        The results, and whether there were such kernels.
    """
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    contract = getattr(module, name)()
    results = run_kernels(contract, dtype, chosen)
    kernels = f"pipeline_kernels.{contract.folder.replace('/', '.')}.cuda"
    return [x.detach() for x in results], kernels in sys.modules


def run_kernels(contract: Any, dtype: torch.dtype, chosen: Mapping[str, Any]) -> list[Tensor]:
    """Compute a case of a contract by what operators have for GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerOperator, "run", run_on_gpu)
        contract.prepare_interpreter(patch)
        return differentiate(contract.make(dtype, **chosen), contract.order, dtype)


def run_on_gpu(operator: EagerOperator, arguments: Sequence[Any], _: Any) -> Any:
    """Run what an operator has for GPUs, whatever the device."""
    return operator.implementations["cuda"](*arguments)


def has_kernels(contract: type[Any]) -> bool:
    """Test that a family has kernels of Triton."""
    folder = Path(pipeline_kernels.__path__[0]) / getattr(contract, "folder", "")
    return (folder / "cuda.py").is_file()
