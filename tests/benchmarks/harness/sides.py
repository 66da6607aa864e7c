"""Sides of a benchmark with a peer: processes that take turns.

A peer may run in an environment of its own (`make peers`), so each side is a process that is driven
over a pipe. Each has OpenMP's threads wait as its users have them: ours as our command line sets
them, a peer's as its libraries choose. Where a peer is not there, its side is left out, and figures
that need it are None.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np

from harness.report import divide
from pipeline_core.cli import OPENMP

WORKER = Path(__file__).with_name("worker.py")
TOLERANCE = 1e-3  # of the largest magnitude, in single precision
WARM_UP = 2  # TorchScript records the first call and optimises in the second
Times = dict[str, list[tuple[float, float]]]
"""Of each side, wall time and time of processors of each call, s."""


@dataclass(frozen=True)
class Place:
    """Where a side is computed.

    Attributes:
        module: That holds its subjects.
        options: What it is told beside the arrays.
        python: Interpreter of a peer; None for ours.
    """

    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    python: Path | None = None


class Side:
    """A process of `harness/worker.py`.

    Args:
        place: Its module and interpreter.
        threads: That it may use.
    """

    def __init__(self, place: Place, threads: int) -> None:
        # e3nn 0.4.4 loads a file of its own that torch refuses by default.
        environment = {"OMP_NUM_THREADS": str(threads), "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
        environment |= OPENMP if place.python is None else {}
        command = [str(place.python or sys.executable), str(WORKER), place.module, str(threads)]
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

    def make(self, kind: str, arrays: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Make a subject."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "subject.npz"
            np.savez(file, **arrays)
            self.ask("make", kind, str(file), dict(options))

    def compute(self) -> dict[str, np.ndarray]:
        """Return what the subject computes."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "result.npz"
            self.ask("result", str(file))
            with np.load(file) as arrays:
                return dict(arrays)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # closes the pipe, at whose end the worker returns


@contextmanager
def open_sides(
    places: Mapping[str, Place], kind: str, arrays: Mapping[str, Any], threads: int
) -> Iterator[dict[str, Side]]:
    """Start the sides, by name, and make the subject on each."""
    with ExitStack() as stack:
        sides = {}
        for name, place in places.items():
            sides[name] = stack.enter_context(Side(place, threads))
            sides[name].make(kind, arrays, place.options)
        yield sides


def read_side_versions(places: Mapping[str, Place], packages: list[str]) -> dict[str, Any]:
    """Return the versions of packages that each side imports."""
    result = {}
    for name, place in places.items():
        with Side(place, 1) as side:
            result[name] = side.ask("versions", packages)
    return result


def compare_sides(sides: Mapping[str, Side], tolerance: float = TOLERANCE) -> dict[str, float]:
    """Return how far ours is from the peer, relative to the largest number; none without a peer.

    Raises:
        RuntimeError: The sides do not compute the same.
    """
    if "peer" not in sides:
        return {}
    ours, peer = (sides[name].compute() for name in ("ours", "peer"))
    deviations = {
        key: float(abs(ours[key] - value).max() / abs(value).max()) for key, value in peer.items()
    }
    if not max(deviations.values()) < tolerance:
        raise RuntimeError(f"the two sides do not compute the same: {deviations}")
    return deviations


def take_turns(sides: Mapping[str, Side], call: str, repeats: int, warm_up: int = WARM_UP) -> Times:
    """Return the times of a call of each side, which take turns after each is warm."""
    for side in sides.values():
        for _ in range(warm_up):
            side.ask("seconds", call)
    rounds = [
        [tuple(side.ask("both_seconds", call)) for side in sides.values()] for _ in range(repeats)
    ]
    columns = map(list, zip(*rounds, strict=True))
    return dict(zip(sides, columns, strict=True))


def find_medians(times: Times, *, of_processors: bool = False) -> dict[str, float]:
    """Return the median time of each side: of the wall, or of the processors."""
    return {name: median(one[of_processors] for one in column) for name, column in times.items()}


def alternate(sides: Mapping[str, Side], call: str, repeats: int) -> dict[str, float | None]:
    """Return median and smallest time of each side, and the ratio of the medians."""
    times = take_turns(sides, call, repeats)
    seconds = find_medians(times)
    best = {f"{name}_best_s": min(wall for wall, _ in column) for name, column in times.items()}
    return {
        "ours_s": seconds["ours"],
        "peer_s": seconds.get("peer"),
        "ratio": divide(seconds.get("peer"), seconds["ours"]),
        "peer_best_s": None,
        **best,
    }


def measure_memory(sides: Mapping[str, Side], call: str) -> dict[str, float | None]:
    """Return the memory of a call on both sides and its ratio, none where ours takes nothing."""
    peak = {name: side.ask("peak_bytes", call) / 1e9 for name, side in sides.items()}
    ratio = divide(peak.get("peer"), peak["ours"])
    return {"ours_gb": peak["ours"], "peer_gb": peak.get("peer"), "memory_ratio": ratio}


def find_single_gains(rows: list[dict[str, Any]], keys: list[str], of: str) -> list[float | None]:
    """Return how many times faster the same case is in single precision, None where only one is."""
    seconds = {(*(row[k] for k in keys), row["dtype"]): row[of] for row in rows}
    pairs = [
        [seconds.get((*(row[k] for k in keys), dtype)) for dtype in ("float64", "float32")]
        for row in rows
    ]
    return [divide(double, single) for double, single in pairs]
