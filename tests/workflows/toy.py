"""A project whose stages take no time, for tests of the workflow's mechanics.

Two model plugins, `toy` and `other`, one that imports data and one that brings a reader; each stage
writes the file that it promises, and training leaves a note of each rank and each epoch. A width of
13 makes training fail, and one above 20 makes an epoch last the seconds above 20; figures fail that
are called "groups".
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from fake_packages import install
from forked_programs import start_programs
from pipeline_kernels.cache import open_cache

REPOSITORY = Path(__file__).parents[2]

DATA = """
from pipeline_core import hookimpl

@hookimpl
def data(run):
    run.data.parent.mkdir(parents=True, exist_ok=True)
    run.data.write_text("data\\n")
    return {"samples": 1}
"""

READER = """
from pipeline_core import hookimpl
from pipeline_atoms.readers import Reader, Units

def read(path, keys):
    return iter(())

@hookimpl
def readers():
    return [Reader(name="raw", summary="A toy", suffixes=(".raw",), units=Units(), read=read)]
"""

MODEL = """
import json, os, time
from pipeline_core import hookimpl
from pipeline_core.config.sections import Section
from pipeline_core.model_info import ModelInfo
from pipeline_core.distributed.world import find_world

FIGURES = ("parity", "history")

class Options(Section):
    width: int = 8
    '''Neurons.'''

@hookimpl
def model():
    return ModelInfo(name="MODEL_NAME", summary="A toy", citation="none", options=Options)

def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return {"wrote": path.name}

@hookimpl
def graph(run):
    return write(run.graph, run.data.read_text())

@hookimpl
def partition(run):
    return write(run.partition)

@hookimpl
def train(run):
    world = find_world()
    run.state.mkdir(parents=True, exist_ok=True)
    node = os.environ.get("SLURMD_NODENAME", "here")
    (run.state / f"rank-{world.rank}").write_text(f"{world.rank} of {world.size} on {node}")
    if run.options.width == 13:
        raise ValueError("thirteen neurons bring bad luck; take twelve")
    epochs = run.sections["train"].epochs
    for epoch in range(len(list(run.state.glob("epoch-*"))), epochs):
        time.sleep(run.options.width - 20 if run.options.width > 20 else 0)
        (run.state / f"epoch-{epoch}").write_text(os.environ.get("SLURM_JOB_ID", ""))
    if world.rank == 0:
        write(run.history, json.dumps({"epoch": epochs}))
        write(run.model, "weights")
    return {"epochs": epochs}

@hookimpl
def evaluate(run):
    write(run.predictions)
    return write(run.metrics, "{}")

@hookimpl
def infer(run):
    return write(run.inference)

@hookimpl
def draw(run):
    if run.options.names == ["groups"]:
        raise KeyError("groups")
    for name in FIGURES:
        write(run.folder / f"{name}.png")
        write(run.folder / f"{name}.rst", f"What {name} shows.")
    from pipeline_core.report.chapter import Chapter, write_chapter
    write_chapter(run.folder, Chapter(experiment=run.experiment, lead="Ours beside the paper's."))
    index = [{"name": n, "title": n.title(), "category": "Accuracy"} for n in FIGURES]
    write(run.folder / "index.json", json.dumps(index))
    return write(run.reproduction, "[]")
"""

EXPERIMENT = """\
description: A toy
plugin: {plugin}
dataset: water
model: {{width: 4}}
train: {{epochs: 3}}
variants:
  longer: {{train: {{epochs: 6}}}}
"""


def write_project(folder: Path) -> None:
    """Write the repository's workflow with toy plugins, data and experiments."""
    for part in ("Snakefile", "workflows/rules", "workflows/report", "profiles"):
        source, target = REPOSITORY / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    (folder / "slurm").symlink_to("profiles/slurm")
    workflows, site = folder / "workflows", folder / "site"
    install(site, "toydata", DATA)
    install(site, "toyreader", READER)
    for plugin in ("toy", "other"):
        install(site, plugin, MODEL.replace("MODEL_NAME", plugin))
        path = workflows / "experiments" / plugin / "first.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(EXPERIMENT.format(plugin=plugin))
    (workflows / "config.yaml").write_text("experiments: [toy/first, other/first]\n")
    (workflows / "datasets").mkdir()
    (workflows / "datasets" / "water.yaml").write_text(
        "description: d\nsources: [{path: raw.xyz}]\n"
    )
    (workflows / "datasets" / "raw.xyz").write_text("raw")


def make_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a project: its plugins installed, an empty home, nothing set.

    Compiled kernels are those that this process has, since a compiler takes seconds.
    """
    chosen = {k: v for k, v in os.environ.items() if not k.startswith(("SNAKEMAKE_", "PIPELINE_"))}
    path = [str(folder / "site"), *filter(None, [chosen.get("PYTHONPATH")])]
    home = str(folder / "home")
    return chosen | {
        "HOME": home,
        "XDG_CONFIG_HOME": home,
        "PYTHONPATH": os.pathsep.join(path),
        "PIPELINE_KERNELS_CACHE": str(open_cache()),
    }


def snakemake(folder: Path, *words: str, ok: bool = True, **variables: str) -> str:
    """Run Snakemake in a project; return what it says.

    Args:
        folder: The project.
        words: Arguments.
        ok: Whether it has to succeed or to fail.
        variables: Added to the environment.
    """
    done = subprocess.run(
        [start_programs() / "snakemake", *words],
        cwd=folder, env=make_environment(folder) | variables, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == ok, done.stdout
    return done.stdout


def plan_jobs(folder: Path, *words: str, **variables: str) -> dict[str, int]:
    """Return what a dry-run would do: rule to number of jobs."""
    text = snakemake(folder, "-n", *words, **variables)
    if "Nothing to be done" in text:
        return {}
    table = text.split("Job stats:")[1].split("total")[0].splitlines()
    rows = [line.split() for line in table if len(line.split()) == 2]
    return {rule: int(count) for rule, count in rows if count.isdigit()}
