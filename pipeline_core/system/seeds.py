"""Randomness of a training: seeds, order of samples, generator states, determinism."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.utils.deterministic as _deterministic
from numpy.typing import NDArray


def seed_everything(*seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch from numbers that are not negative."""
    for_python, for_numpy, for_torch = map(int, np.random.SeedSequence(seed).generate_state(3))
    random.seed(for_python)
    np.random.seed(for_numpy)  # noqa: NPY002 - plugins and their libraries draw from it
    torch.manual_seed(for_torch)


def draw_order(n_samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the order of samples in an epoch, (n_samples,); depends on seed and epoch only."""
    return np.random.default_rng([seed, epoch]).permutation(n_samples)


def capture_generators(device: torch.device) -> dict[str, Any]:
    """Return the states of the global generators, of types that `torch.load` accepts as weights."""
    _, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": (np.asarray(keys).tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_generator_states(states: dict[str, Any], device: torch.device) -> None:
    """Put the global generators into the states that `capture_generators` returned."""
    random.setstate(states["python"])
    np.random.set_state(("MT19937", *states["numpy"]))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and states["cuda"] is not None:
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def use_deterministic(wanted: bool) -> Iterator[None]:
    """Make torch use only algorithms with bit-identical results, within the block.

    Raises:
        ValueError: An operation of the model has none on this device.
    """
    if not wanted:
        yield
        return
    before = torch.get_deterministic_debug_mode()
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS varies
    filled = _deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    # Not `use_deterministic_algorithms`: it imports the compiler, which takes longer than torch.
    torch.set_deterministic_debug_mode("error")
    # torch would also fill all uninitialized memory with NaN: half of the time of a step.
    _deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise ValueError(
            f"train.deterministic: {error}; set it to false to accept that the last bits vary"
        ) from error
    finally:
        torch.set_deterministic_debug_mode(before)
        _deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        if workspace is None:
            del os.environ["CUBLAS_WORKSPACE_CONFIG"]
