"""The sides of the benchmark of eGNN-ESP: pairs of processes that take turns."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _peak import measure_peak
from _sides import Side, alternate, compare_sides, make, measure_memory

from pipeline_core.cli import OPENMP


class Peer(NamedTuple):
    """Whom ours is compared with.

    Attributes:
        side: Module `_esp_<side>.py`.
        python: Its interpreter.
        harmonics: Highest degree of the harmonics of tensor products.
        calls: What is measured.
        same: Whether it computes the same.
    """

    side: str
    python: Path
    harmonics: int = 0
    calls: Sequence[str] = ("step",)
    same: bool = False


@contextmanager
def pair(peer: Peer, threads: int) -> Iterator[dict[str, Side]]:
    """Start ours and a peer."""
    openmp = OPENMP if peer.python == Path(sys.executable) else {}
    with (
        Side(Path(sys.executable), "_esp_ours", threads) as ours,
        Side(peer.python, f"_esp_{peer.side}", threads, openmp) as theirs,
    ):
        yield {"ours": ours, "peer": theirs}


def compare(
    arrays: Mapping[str, np.ndarray],
    options: Mapping[str, Any],
    peer: Peer,
    threads: int,
    repeats: int,
) -> dict[str, dict[str, Any]]:
    """Make the network on both sides, and measure their calls in turn.

    Returns:
        The figures of each call; `matrix_gflops` is the rate of a large product of matrices,
        `peak_gflops` that of multiply-adds in registers.

    Raises:
        RuntimeError: Sides that should agree do not.
    """
    with tempfile.TemporaryDirectory() as folder, pair(peer, threads) as sides:
        file = Path(folder) / "subject.npz"
        np.savez(file, **arrays)
        subject = "Network", str(file), {**options, "harmonics": peer.harmonics}
        make(sides, subject)
        facts = {f"{name}_parameters": side.ask("parameters") for name, side in sides.items()}
        deviations = compare_sides(sides, Path(folder)) if peer.same else {}
        facts["deviation"] = max(deviations.values(), default=None)
        result = {
            call: alternate(sides, call, repeats) | measure_memory(sides, call)
            for call in peer.calls
        }
        facts["matrix_gflops"] = sides["ours"].ask("matrix_rate") / 1e9  # forgets the network
        facts["peak_gflops"] = measure_peak(torch.float32, threads)
    return {call: figures | facts for call, figures in result.items()}
