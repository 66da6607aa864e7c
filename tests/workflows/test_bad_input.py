"""Bad input, as a table: what is wrong, the command that meets it, and what the user reads.

Each case leaves no traceback and no file that it was about to write. What else an import refuses is
in `plugins/atoms/importing/test_bad_inputs.py`, what else damage does in `core/test_faults.py`.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ase.build
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from forked_programs import start_programs
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import call

DATASET = """\
description: EMT copper
sources:
  - path: raw/*.extxyz
labels: [energy, forces, stress]
split: {val: 0.2, test: 0.2}
"""

EXPERIMENT = """\
description: a small CHGNet
plugin: chgnet
dataset: copper
scale: smoke
model:
  {atom_features: 8, bond_features: 8, angle_features: 8, hidden_features: 8, readout_features: [8],
   radial_functions: 5, angular_functions: 5}
graph: {cutoff: 4.0, angle_cutoff: 3.0}
train:
  epochs: 1
  batch_size: 4
  loss: {energy: {}, forces: {}}
"""


def make_frames() -> list[Atoms]:
    """Strained, rattled copper with EMT's labels."""
    rng = np.random.default_rng(0)
    result = []
    for _ in range(12):
        atoms = ase.build.bulk("Cu", "fcc", 3.6, cubic=True)
        atoms.set_cell(atoms.cell @ (np.eye(3) + rng.normal(0, 0.01, (3, 3))), scale_atoms=True)
        atoms.positions += rng.normal(0, 0.03, atoms.positions.shape)
        atoms.calc = EMT()
        labels = {
            "energy": atoms.get_potential_energy(),
            "forces": atoms.get_forces(),
            "stress": atoms.get_stress(),
        }
        atoms.calc = SinglePointCalculator(atoms, **labels)
        result.append(atoms)
    return result


def project(folder: Path) -> None:
    """A project that works, for the cases to break."""
    for name in ("datasets/raw", "experiments/chgnet"):
        (folder / "workflows" / name).mkdir(parents=True)
    (folder / "workflows/datasets/copper.yaml").write_text(DATASET)
    (folder / "workflows/experiments/chgnet/small.yaml").write_text(EXPERIMENT)
    write_raw(folder, make_frames())


def write_raw(folder: Path, atoms: list[Atoms]) -> Path:
    path = folder / "workflows/datasets/raw/frames.extxyz"
    write(path, atoms, format="extxyz")
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def run(folder: Path, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def prepare_stages(folder: Path, *stages: str) -> None:
    project = Project(folder / "workflows", folder / "results", load_registry())
    for stage in stages:
        call(project.run("chgnet/small"), stage)


COMMANDS = {
    "data": ("data", "--dataset", "copper"),
    "graph": ("graph", "--experiment", "chgnet/small"),
    "partition": ("partition", "--experiment", "chgnet/small"),
    "train": ("train", "--experiment", "chgnet/small"),
    "validate": ("validate", "chgnet/small"),
}
OUTPUTS = {
    "data": "results/datasets/copper/data.h5",
    "graph": "results/chgnet/small/base/graph.h5",
    "train": "results/chgnet/small/base/model.pt",
    "validate": "results",
}


@dataclass(frozen=True)
class Case:
    """What is wrong, the stage that meets it, what the user must read, and the stages before it.

    Raw files and experiments are broken before those stages, artifacts after them.
    """

    wrong: Callable[[Path], None]
    stage: str
    message: str
    before: tuple[str, ...] = ()
    artifact: bool = False


def name_unknown_plugin(folder: Path) -> None:
    edit(folder / "workflows/experiments/chgnet/small.yaml", "plugin: chgnet", "plugin: chgnett")


def write_typo(folder: Path) -> None:
    edit(folder / "workflows/experiments/chgnet/small.yaml", "epochs", "epocs")


def truncate_extxyz(folder: Path) -> None:
    edit(folder / "workflows/datasets/copper.yaml", "labels:", "strict: true\nlabels:")
    path = write_raw(folder, make_frames())
    path.write_text("\n".join(path.read_text().splitlines()[:-2]) + "\n")


def truncate_hdf5(folder: Path) -> None:
    path = folder / OUTPUTS["data"]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def name_unknown_element(folder: Path) -> None:
    atoms = make_frames()
    for one in atoms:
        one.numbers[0] = 98
    write_raw(folder, atoms)


def add_lone_atom(folder: Path) -> None:
    atoms = make_frames()
    lonely = Atoms("Cu", cell=[30, 30, 30], pbc=True)
    lonely.calc = SinglePointCalculator(
        lonely, energy=-1.0, forces=np.zeros((1, 3)), stress=np.zeros(6)
    )
    write_raw(folder, [*atoms, lonely])


CASES = {
    "unknown plugin": Case(
        name_unknown_plugin,
        "validate",
        r"small\.yaml:2: .*no plugin 'chgnett'.*did you mean 'chgnet'",
    ),
    "typo in an experiment": Case(
        write_typo, "validate", r"small\.yaml:10: train\.epocs: unknown key; did you mean 'epochs'"
    ),
    "truncated extxyz": Case(truncate_extxyz, "data", r"frames\.extxyz.*frame 11.*truncated"),
    "truncated HDF5": Case(
        truncate_hdf5,
        "graph",
        r"data\.h5: its contents are damaged: its end is missing.*remove",
        ("data",),
        artifact=True,
    ),
    "an element that the model does not know": Case(
        name_unknown_element,
        "train",
        r"CHGNet supports the elements from H to Pu, not Cf \(Z = 98\)",
        ("data", "graph", "partition"),
    ),
    "no neighbours": Case(
        add_lone_atom, "graph", r"frames\.extxyz.*no atom has a neighbour within 4 Å", ("data",)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_explained_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    project(tmp_path)
    if not case.artifact:
        case.wrong(tmp_path)
    prepare_stages(tmp_path, *case.before)
    if case.artifact:
        case.wrong(tmp_path)

    done = run(tmp_path, start_programs() / "pipeline-core", *COMMANDS[case.stage])

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(case.message, done.stderr, re.DOTALL), done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / OUTPUTS[case.stage]).exists()
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.slow
def test_a_full_disk_is_explained_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files makes write() fail as a full disk does."""
    project(tmp_path)

    def small_files() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))

    words = [sys.executable, "-m", "pipeline_core.cli", *COMMANDS["data"]]
    done = run(tmp_path, *words, preexec_fn=small_files)

    assert done.returncode == 1
    assert re.search(r"import\.json|data\.h5", done.stderr)
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "results").rglob("*.h5"))
    assert not list(tmp_path.rglob("*.part"))
