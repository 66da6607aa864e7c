"""Sides of a benchmark with a peer: processes that take turns.

The peer runs in an environment of its own (`make peers`), so each side is a process that is driven
over a pipe. Each has OpenMP's threads wait as its users have them: ours as our command line sets
them, a peer's as its libraries choose.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np

from pipeline_core.cli import OPENMP

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".venv-peers/bin/python"
TOLERANCE = 1e-3  # of the largest magnitude, in single precision
WARM_UP = 2  # TorchScript records the first call and optimises in the second


class Side:
    """A process of `_worker.py`.

    Args:
        python: Its interpreter.
        module: That holds the subjects.
        threads: That it may use.
        openmp: Variables that say how OpenMP's threads wait; none for a peer.
    """

    def __init__(
        self, python: Path, module: str, threads: int, openmp: Mapping[str, str] = OPENMP
    ) -> None:
        # e3nn 0.4.4 loads a file of its own that torch refuses by default.
        environment = {"OMP_NUM_THREADS": str(threads), "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
        environment |= openmp
        command = [str(python), str(HERE / "_worker.py"), module, str(threads)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker and wait for its result.

        Raises:
            RuntimeError: The process has ended; its traceback is on stderr.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the empty answer says the same
        answer = self.process.stdout.readline()
        if not answer:
            command = " ".join(self.process.args)
            raise RuntimeError(f"{command}: ended with exit code {self.process.wait()}")
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # closes the pipe, at whose end the worker returns


def make(sides: Mapping[str, Side], subject: tuple[Any, ...]) -> None:
    """Make the subject on both sides."""
    for side in sides.values():
        side.ask("make", *subject)


def compare_sides(sides: Mapping[str, Side], folder: Path) -> dict[str, float]:
    """Return how far apart what the sides compute is."""
    result = {}
    for name, side in sides.items():
        file = folder / f"{name}.npz"
        side.ask("result", str(file))
        with np.load(file) as arrays:
            result[name] = dict(arrays)
    deviations = {
        key: float(abs(result["ours"][key] - value).max() / abs(value).max())
        for key, value in result["peer"].items()
    }
    if not max(deviations.values()) < TOLERANCE:
        raise RuntimeError(f"the two sides do not compute the same: {deviations}")
    return deviations


def alternate(sides: Mapping[str, Side], call: str, repeats: int) -> dict[str, float]:
    """Return median and smallest time of each side, and the ratio of the medians."""
    times = take_turns(sides, call, repeats)
    ours, peer = median(times["ours"]), median(times["peer"])
    best = {f"{name}_best_s": min(column) for name, column in times.items()}
    return {"ours_s": ours, "peer_s": peer, "ratio": peer / ours} | best


def take_turns(sides: Mapping[str, Side], call: str, repeats: int) -> dict[str, tuple[float, ...]]:
    """Return the times of a call of each side, which take turns after each is warm."""
    for side in sides.values():
        for _ in range(WARM_UP):
            side.ask("seconds", call)
    rounds = [[side.ask("seconds", call) for side in sides.values()] for _ in range(repeats)]
    return dict(zip(sides, zip(*rounds, strict=True), strict=True))


def measure_memory(sides: Mapping[str, Side], call: str) -> dict[str, float | None]:
    """Return the memory of a call on both sides and its ratio, none where ours takes nothing."""
    peak = {name: side.ask("peak_bytes", call) for name, side in sides.items()}
    ratio = peak["peer"] / peak["ours"] if peak["ours"] > 0 else None
    return {f"{name}_gb": size / 1e9 for name, size in peak.items()} | {"memory_ratio": ratio}
