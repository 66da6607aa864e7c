"""Faults that are injected into artifacts, and what becomes of them.

    python tests/benchmarks/faults.py [--count 1000]

A small project goes through all stages. Then its artifacts are damaged, one at a time, and read as
stages read them: a bit flips, the end is missing, a block is empty or there twice, something
follows, it is another artifact, or no file at all. `n_silent` counts faults after which something
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
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline_core import store
from pipeline_core.figures import results
from pipeline_core.lineage import MAKERS, find_fault, find_history_fault
from pipeline_core.run import ExperimentRun, Run
from pipeline_core.seals import SealedFile, read_seal
from pipeline_core.testing.projects import EXPERIMENT, call, write_project
from pipeline_core.training.checkpoint import load_model
from pipeline_core.training.state import load_state

HUNG = 10.0
STAGES = ("data", "graph", "partition", "train", "evaluate", "infer")
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {
        "atom_features": 4, "bond_features": 4, "angle_features": 4, "hidden_features": 4,
        "readout_features": [4], "radial_functions": 5, "angular_functions": 5,
        "convolutions": 2, "cutoff": 3.0, "angle_cutoff": 2.6,
    },
    "graph": {"cutoff": 3.0, "angle_cutoff": 2.6},
    "train": {"epochs": 2},
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


def cut(content: bytes, random: np.random.Generator) -> bytes:
    """Leave out the end, or all."""
    return content[: random.integers(len(content))]


def empty_block(content: bytes, random: np.random.Generator) -> bytes:
    """Write zeros over a block, as a disk may that has lost it."""
    begin, size = random.integers(len(content)), random.integers(1, 4097)
    return (content[:begin] + bytes(size) + content[begin + size :])[: len(content)]


def double_block(content: bytes, random: np.random.Generator) -> bytes:
    """Write a block twice."""
    begin, size = random.integers(len(content)), random.integers(1, 4097)
    return content[: begin + size] + content[begin:]


def append(content: bytes, random: np.random.Generator) -> bytes:
    """Let something follow."""
    return content + random.bytes(random.integers(1, 4097))


DAMAGES = {
    "bit": flip_bit,
    "end": cut,
    "empty block": empty_block,
    "double block": double_block,
    "more": append,
}


def read_arrays(path: Path, schema: str) -> Any:
    """Read an HDF5 artifact as a stage does: a digest of all arrays, and where they come from."""
    digest = hashlib.sha256()

    def add(name: str, node: h5py.Group | h5py.Dataset) -> None:
        digest.update(f"{name} {sorted(node.attrs.items())}".encode())
        if isinstance(node, h5py.Dataset):
            content = node[()]
            digest.update(content.tobytes() if content.dtype != object else str(content).encode())

    with store.open_artifact(path, schema) as file, store.explain_damage(path):
        file.visititems(add)
    return digest.digest(), store.read_provenance(path)


def read_archive(path: Path, load: Callable[[], Any]) -> Any:
    """Read a torch archive as a stage does; return its content as bytes."""
    load()
    with store.open_content(path) as file:
        assert file is not None
        return file.read()


def read_current(run: Run, name: str, read: Callable[[], Any]) -> Any:
    """Read an artifact that belongs to the run."""
    if name in MAKERS and (fault := find_fault(run, name)):
        raise ValueError(str(fault))
    return read()


def read_history(run: Run) -> Any:
    """Read the history as the figures do, which Snakemake gives them."""
    if not run.history.is_file():
        raise ValueError(f"{run.history}: missing")
    if fault := find_history_fault(run):
        raise ValueError(str(fault))
    return results.read_history(run)


def list_readers(
    experiment: ExperimentRun, run: Run
) -> Iterator[tuple[str, Path, Callable[[], Any]]]:
    """Yield each artifact of a run of an experiment: name, file, and what reads it as stages do."""
    assert run.dataset is not None
    state, report = run.state / "last.pt", run.dataset.report
    for name in ("data", "graph", "partition", "predictions", "inference"):
        path = getattr(run, name)
        with store.open_any(path) as file:
            schema = str(file.attrs["schema"])
        yield name, path, partial(read_arrays, path, schema)
    for name, path, load in (("model", run.model, load_model), ("state", state, load_state)):
        yield name, path, partial(read_archive, path, partial(load, path, run.model_info))
    yield "metrics", run.metrics, partial(store.read_json, run.metrics)
    yield "report", report, lambda: results.read_import_report(experiment)
    yield "history", run.history, partial(read_history, run)


def list_injectors(experiment: ExperimentRun, run: Run) -> Iterator[Injector]:
    """All faults of content; add further kinds here."""
    readers = {
        name: (path, partial(read_current, run, name, read))
        for name, path, read in list_readers(experiment, run)
    }
    contents = [path.read_bytes() for path, _ in readers.values()]

    def exchange(content: bytes, random: np.random.Generator) -> bytes:
        others = [other for other in contents if other != content]
        return others[random.integers(len(others))]

    for name, (path, read) in readers.items():
        for fault, damage in {**DAMAGES, "another artifact": exchange}.items():
            yield Injector(f"{name}: {fault}", path, damage, read)


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


def obstruct(injector: Injector) -> Counter[str]:
    """Put what is no file in the place of an artifact; count what becomes of it."""
    path, outcome = injector.path, Counter[str]()
    expected = injector.read()
    aside = path.rename(path.with_name(f"{path.name}.aside"))
    obstacles: list[tuple[Callable[[], None], Callable[[], None]]] = [
        (path.mkdir, path.rmdir),
        (lambda: path.symlink_to("nowhere"), path.unlink),
        (lambda: path.symlink_to(path.name), path.unlink),
    ]
    for put, remove in obstacles:
        put()
        outcome[judge(injector, expected)] += 1
        remove()
    aside.rename(path)
    return outcome


def judge(injector: Injector, expected: Any) -> str:
    """Read a damaged file."""
    try:
        return "harmless" if injector.read() == expected else "silent"
    except (ValueError, OSError) as error:  # of both the command line says what they say
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
    parser.add_argument("--count", type=int, default=1000)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        project = write_project(Path(folder) / "project", "chgnet", SECTIONS)
        experiment = project.load_experiment(f"chgnet/{EXPERIMENT}")
        run = replace(experiment.run("base"), device="cpu")
        for stage in STAGES:
            call(run, stage)
        injectors = list(list_injectors(experiment, run))
        cases = {one.name: inject(one, count) for one in injectors}
        # Figures do without a report.
        once = {one.path: one for one in injectors if one.path.name != "import.json"}.values()
        cases |= {f"{one.path.name}: no file": obstruct(one) for one in once}
        cost = measure_check(Path(folder))
    for name, outcome in cases.items():
        print(name, dict(outcome))
    total = sum(cases.values(), Counter())
    counts = {f"n_{what}": total[what] for what in ("lost", "hung", "traceback", "silent")}
    injected = sum(total[what] for what in ("harmless", "silent", "noticed", "traceback"))
    print(json.dumps({"name": "faults", "n_injected": injected, **counts, "seconds_per_gb": cost}))


if __name__ == "__main__":
    main()
