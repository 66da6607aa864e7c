"""The sides of the benchmark of eGNN-ESP: pairs of processes that take turns."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import _mace_sides
import numpy as np

HERE = Path(__file__).parent


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


class Side(_mace_sides.Side):
    """A process of `_esp_worker.py`.

    Args:
        python: Its interpreter.
        name: ours, so3 or dptb.
        threads: That it may use.
    """

    def __init__(self, python: Path, name: str, threads: int) -> None:
        # e3nn 0.4.4 loads a file of its own that torch refuses by default.
        environment = {"OMP_NUM_THREADS": str(threads), "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
        self.process = subprocess.Popen(
            [str(python), str(HERE / "_esp_worker.py"), name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )


@contextmanager
def pair(peer: Peer, threads: int) -> Iterator[dict[str, Side]]:
    """Start ours and a peer."""
    with ExitStack() as stack:
        ours = stack.enter_context(Side(Path(sys.executable), "ours", threads))
        yield {"ours": ours, "peer": stack.enter_context(Side(peer.python, peer.side, threads))}


def compare(
    arrays: Mapping[str, np.ndarray],
    options: Mapping[str, Any],
    peer: Peer,
    threads: int,
    repeats: int,
) -> dict[str, dict[str, Any]]:
    """Make the network on both sides, and measure their calls in turn.

    Returns:
        The figures of each call; `matrix_gflops` is the rate of a large product of matrices.

    Raises:
        RuntimeError: Sides that should agree do not.
    """
    with tempfile.TemporaryDirectory() as folder, pair(peer, threads) as sides:
        file = Path(folder) / "subject.npz"
        np.savez(file, **arrays)
        subject = "Network", str(file), {**options, "harmonics": peer.harmonics}
        _mace_sides.make(sides, subject)
        facts = {f"{name}_parameters": side.ask("parameters") for name, side in sides.items()}
        deviations = _mace_sides.agreement(sides, Path(folder)) if peer.same else {}
        facts["deviation"] = max(deviations.values(), default=None)
        found = {
            call: _mace_sides.alternated(sides, call, repeats) | _mace_sides.memory(sides, call)
            for call in peer.calls
        }
        facts["matrix_gflops"] = sides["ours"].ask("matrix_rate") / 1e9  # forgets the network
    return {call: figures | facts for call, figures in found.items()}
