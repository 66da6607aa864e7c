"""Faults that are injected into artifacts, and what becomes of them.

    python tests/benchmarks/faults.py [--flips 1000]

A small project of each kind of data goes through all stages. Then bits of its artifacts are
flipped, one at a time, and read as stages read them. `n_silent` counts flips after which something
else is read without a word, `n_traceback` errors that are no message for a user, `n_hung` reads of
more than ten seconds, `n_lost` artifacts that reading has changed.

The last line printed is one JSON object; `seconds_per_gb` is what checking costs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_core import store
from pipeline_core.figures import results
from pipeline_core.lineage import MAKERS, find_history_fault
from pipeline_core.run import Run
from pipeline_core.seals import SealedFile, read_seal
from pipeline_core.testing.projects import EXPERIMENT, call, write_project
from pipeline_core.training.checkpoint import load_archive

HUNG = 10.0
STAGES = ("data", "graph", "partition", "train", "evaluate", "infer")
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {
        "atom_features": 4, "bond_features": 4, "angle_features": 4, "hidden_features": 4,
        "readout_features": [4], "radial_functions": 5, "angular_functions": 5,
        "convolutions": 2, "cutoff": 3.0, "angle_cutoff": 2.6,
    },
    "graph": {"cutoff": 3.0, "angle_cutoff": 2.6},
    "train": {"epochs": 1},
}  # fmt: skip


@dataclass(frozen=True)
class Injector:
    """A kind of fault.

    Attributes:
        name: What the report calls it.
        path: The file that it is done to.
        damage: Content and generator -> damaged content.
        read: Reads the file as a stage does; what it returns is compared by `==`.
    """

    name: str
    path: Path
    damage: Callable[[bytes, np.random.Generator], bytes]
    read: Callable[[], Any]


def flip_bit(content: bytes, random: np.random.Generator) -> bytes:
    """Flip one bit anywhere."""
    damaged = bytearray(content)
    damaged[random.integers(len(damaged))] ^= 1 << int(random.integers(8))
    return bytes(damaged)


def read_content(path: Path) -> Any:
    """Read an artifact whole: a digest of the content, and where it comes from."""
    if path.suffix == ".json":
        return store.read_json(path)
    if path.suffix == ".pt":
        load_archive(path, "train first")
    with store.open_content(path) as file:
        assert file is not None, "no seal"
        return hashlib.sha256(file.read()).hexdigest(), store.read_provenance(path)


def read_history(run: Run) -> Any:
    """Read the history as the figures do."""
    if fault := find_history_fault(run):
        raise ValueError(str(fault))
    return results.read_history(run)


def list_injectors(run: Run) -> Iterator[Injector]:
    """All faults; add further kinds here."""
    assert run.dataset is not None
    paths = {name: getattr(run, name) for name in MAKERS}
    paths |= {"data": run.data, "report": run.dataset.report, "state": run.state / "last.pt"}
    for name, path in paths.items():
        if path.is_file():
            yield Injector(f"bit of {name}", path, flip_bit, lambda p=path: read_content(p))
    yield Injector("bit of history", run.history, flip_bit, lambda: read_history(run))


def inject(injector: Injector, count: int) -> Counter[str]:
    """Do a fault many times; count what became of it."""
    random, whole, outcome = np.random.default_rng(0), injector.path.read_bytes(), Counter[str]()
    expected = injector.read()
    try:
        for _ in range(count):
            damaged = injector.damage(whole, random)
            injector.path.write_bytes(damaged)
            begin = time.perf_counter()
            outcome[judge(injector, expected)] += 1
            outcome["hung"] += time.perf_counter() - begin > HUNG
            outcome["lost"] += injector.path.read_bytes() != damaged
    finally:
        injector.path.write_bytes(whole)
    return outcome


def judge(injector: Injector, expected: Any) -> str:
    """Read a damaged file."""
    try:
        return "harmless" if injector.read() == expected else "silent"
    except ValueError as error:
        return "noticed" if injector.path.name in str(error) else "traceback"
    except Exception:  # noqa: BLE001 - whatever it is, it is no message
        return "traceback"


def measure_check(folder: Path, n_bytes: int = 2**28) -> float:
    """Return seconds that checking takes a GB."""
    path = folder / "large"
    with store.write_sealed(path, {}) as file:
        for _ in range(n_bytes // 2**20):
            file.write(bytes(2**20))
    begin = time.perf_counter()
    seal = read_seal(path)
    assert seal is not None
    with SealedFile(path, seal) as content:
        content.check()
    return (time.perf_counter() - begin) * 1e9 / n_bytes


def main() -> None:
    """Print what becomes of each kind of fault, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=1000)
    count = parser.parse_args().flips
    with tempfile.TemporaryDirectory() as folder:
        project = write_project(Path(folder) / "project", "chgnet", SECTIONS)
        run = replace(project.run(f"chgnet/{EXPERIMENT}"), device="cpu")
        for stage in STAGES:
            call(run, stage)
        cases = {one.name: inject(one, count) for one in list_injectors(run)}
        cost = measure_check(Path(folder))
    for name, outcome in cases.items():
        print(name, dict(outcome))
    total = sum(cases.values(), Counter())
    counts = {f"n_{what}": total[what] for what in ("lost", "hung", "traceback", "silent")}
    injected = count * len(cases)
    print(json.dumps({"name": "faults", "n_injected": injected, **counts, "seconds_per_gb": cost}))


if __name__ == "__main__":
    main()
