"""Experiments and dataset files as `mutation.py` damages them: what users write by hand.

A damaged one is refused by the name of its file, or it is another configuration: one whose options
are those that their own JSON gives, and of which the engine can say what each stage reads.
"""

import json
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from core.fuzz.subjects import ROOT, Content, Subject, make_folder
from pipeline_core.model_info import STAGES
from pipeline_core.project.project import Project
from pipeline_core.project.run import DatasetRun, Run
from pipeline_core.registry import Registry
from pipeline_core.stages.builtin import load_registry

_WORKFLOWS = ROOT / "workflows"
_PLUGINS = ("chgnet", "egnn_esp", "gauge_flows", "htfbr", "mace")
_MANY_WORDS = """\
# Every kind of value that a dataset file can have.
description: >-
  Water and
  ice
citation: "nobody, 2020"
downloads:
  raw/water.xyz:
    url: https://example.org/water.xyz
    sha256: 8e48469016e5baf69d765580416238c81ea84887db61dc424c43936ebf50f7e5
    max_gb: 0.5
sources:
  - path: raw/*.xyz
    reader: extxyz
    keys: {energy: REF_energy, forces: 'REF_forces'}
    units: &kbar {stress: kbar, stress_sign: pressure}
    group: folder
    limits: {energy: 1.0e+6, distance: null}
  - path: raw/**/*.extxyz
    units: *kbar
    split: train
    repeat: [2, 2, 1]
labels: [energy, forces, stress]
partial: [stress]
reference_energies: {H: -13.6, O: -4.3e+2}
strict: false
split: {method: list, val_groups: [ice*], test_groups: ["water"], seed: 0}
stress_check_samples: 8
"""


def _make_datasets(folder: Path) -> Iterator[Subject]:
    """Write dataset files of each kind."""
    place = make_folder(folder, "datasets")
    for name in ("water.xyz", "ice/1.extxyz"):
        (place / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "raw" / name).touch()
    (place / "water.yaml").write_text(_MANY_WORDS)
    (place / "ice.yaml").write_text("description: Ice\nsources: [{path: raw/ice/1.extxyz}]\n")
    (place / "mixture.yaml").write_text(
        "description: Both\nparts:\n  - dataset: water\n  - dataset: ice\n"
        "reference_energies: none\nmax_reference_energy: 1.0e+3\n"
    )
    for name in ("gauge_4d_quarks", "ethene_smoke"):
        (place / f"{name}.yaml").write_bytes((_WORKFLOWS / f"datasets/{name}.yaml").read_bytes())
    for path in sorted(place.glob("*.yaml")):
        if path.stem != "ice":
            yield Subject(f"dataset_{path.stem}", path, _read_dataset)


def _read_dataset(path: Path) -> list[Content | None]:
    with tempfile.TemporaryDirectory() as name:
        datasets = Path(name, "workflows/datasets")
        datasets.parent.mkdir()
        datasets.symlink_to(path.parent)
        dataset = _open_project(name).load_dataset(path.stem)
        return _describe(_list_facts(dataset))


def _make_experiments(folder: Path) -> Iterator[Subject]:
    """Write an experiment of each plugin."""
    for plugin in _PLUGINS:
        path = make_folder(folder, f"experiments_{plugin}") / "damaged.yaml"
        path.write_bytes((_WORKFLOWS / f"experiments/{plugin}/smoke.yaml").read_bytes())
        yield Subject(f"experiment_{plugin}", path, _read_experiment)


def _read_experiment(path: Path) -> list[Content | None]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name, "workflows/experiments")
        place.mkdir(parents=True)
        (place / "any").symlink_to(path.parent)
        place.with_name("datasets").symlink_to(_WORKFLOWS / "datasets")
        experiment = _open_project(name).load_experiment(f"any/{path.stem}")
        facts = [fact for run in experiment.runs.values() for fact in _list_run_facts(run)]
        return _describe([experiment.options.model_dump_json(), *facts])


@cache
def _load_registry() -> Registry:
    return load_registry()


def _open_project(folder: str) -> Project:
    return Project(Path(folder, "workflows"), Path("results"), _load_registry())


def _list_facts(dataset: DatasetRun) -> list[Any]:
    """Return what the data stage of a dataset is told."""
    for part in dataset.parts:
        _require_repeatable(part.options)
    return [dataset.select_params(), sorted(dataset.find_raw_files())]


def _list_run_facts(run: Run) -> Iterator[Any]:
    """Yield what each stage of a variant is told."""
    for options in run.sections.values():
        _require_repeatable(options)
    yield [run.variant, run.seed, run.ranks, run.file.threads]
    for stage in STAGES:
        if stage not in ("data", *run.model_info.without):
            yield [stage, run.select_params(stage), sorted(map(str, run.list_inputs(stage)))]


def _require_repeatable(options: BaseModel) -> None:
    """Check that options are accepted as they are written down; defaults need not be."""
    again = type(options).model_validate_json(options.model_dump_json(exclude_unset=True))
    if again != options:
        raise TypeError(f"{options!r} becomes {again!r}")


def _describe(facts: Iterable[Any]) -> list[Content | None]:
    """Return a number that differs where the facts do, as the one array of a frame."""
    text = json.dumps(list(facts), sort_keys=True)
    return [{"facts": np.array(zlib.crc32(text.encode()))}]


MAKERS = (_make_datasets, _make_experiments)
