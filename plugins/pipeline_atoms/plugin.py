"""Hooks for all interatomic potentials: raw files, graphs, training parts and inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from pipeline_atoms.config.datasets import Dataset, choose_model
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.config.inference import InferOptions
from pipeline_atoms.readers import Reader, catalogue
from pipeline_core import hookimpl
from pipeline_core.config.datasets import DatasetFile
from pipeline_core.config.experiments import BASE, ExperimentFile, Variant
from pipeline_core.figures import Figure
from pipeline_core.hookspecs import Example, Summary
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.run import DatasetRun, Dependencies, ExperimentRun, Run

if TYPE_CHECKING:
    from ase.calculators.calculator import Calculator

    from pipeline_core.distributed.ranks import Ranks
    from pipeline_core.figures.findings import Findings
    from pipeline_core.figures.predictions import Comparison
    from pipeline_core.task import Samples, Task
    from pipeline_core.training.micro_batches import SampleDivider

HOOKS_VERSION = "1.2"

SECTIONS: Final[Mapping[str, Mapping[str, type[BaseModel]]]] = {
    "structure": {"graph": GraphOptions, "infer": InferOptions},
    "matrix": {"graph": GraphOptions},
}
"""Kind of data to the stages that are implemented here for models of any package, with options."""


def _does(stage: str, run: Run) -> bool:
    return stage in SECTIONS.get(run.model_info.data_kind, {})


@hookimpl
def sections(info: ModelInfo) -> Mapping[str, type[BaseModel]] | None:
    """Return the options of graphs and of inference."""
    return SECTIONS.get(info.data_kind)


@hookimpl(trylast=True)
def variants(file: ExperimentFile, path: Path) -> Mapping[str, Variant]:
    """Return the rounds of active learning."""
    from pipeline_atoms.active_learning.rounds import make_variants

    return make_variants(file, path)


@hookimpl(trylast=True)
def variant_dataset(run: Run, base: Run) -> DatasetRun | None:
    """Return the dataset of a round, with the labels up to it."""
    from pipeline_atoms.active_learning.rounds import find_dataset

    return find_dataset(run, base)


@hookimpl
def rules() -> Mapping[str, Sequence[Callable[[ExperimentRun, Run], Any]]]:
    """Return the functions of picking and labelling."""
    from pipeline_atoms.active_learning.jobs import FUNCTIONS

    return {"learn": FUNCTIONS}


@hookimpl
def check(run: Run) -> None:
    """Refuse committees and rounds that cannot be, and limits of uncertainty for one model.

    Raises:
        ValueError: A committee is of a model without energies and forces, or lacks the split to
            calibrate it on; rounds lack a committee; or one model has limits of uncertainty.
    """
    if run.file.members > 1:
        _check_committee(run)
    if run.file.learn is not None and run.variant == BASE:
        from pipeline_atoms.active_learning.rounds import require_rounds

        require_rounds(run)
    infer = run.sections["infer"]
    if run.file.members == 1 and isinstance(infer, InferOptions):
        infer.refuse_uncertainty()


def _check_committee(run: Run) -> None:
    """Check that a committee can be calibrated."""
    info, splits = run.model_info, getattr(run.sections["evaluate"], "splits", None)
    given = {"energy", "forces"} <= set(info.predicts) or not info.predicts
    if info.data_kind != "structure" or not given:
        raise ValueError(
            f"members: plugin {info.name!r} predicts no energies and forces of structures, which a "
            "committee needs; remove the key, and write the seeds as variants"
        )
    if splits is None or "val" not in splits:
        raise ValueError(
            "evaluate.splits: a committee is calibrated on the validation split; add val"
        )


@hookimpl(trylast=True)
def dataset_model(content: Mapping[str, Any]) -> type[DatasetFile]:
    """Return the model of a dataset of structures, or of a mixture of several."""
    return choose_model(content)


@hookimpl
def check_data(run: DatasetRun) -> None:
    """Refuse raw files without a reader, and copies that cannot be made."""
    if isinstance(run.options, Dataset):
        from pipeline_atoms.importing.frames import check_copies
        from pipeline_atoms.importing.sources import find_dataset_sources

        for source in find_dataset_sources(run):
            check_copies(source)


@hookimpl(trylast=True)
def dependencies(run: DatasetRun) -> Dependencies:
    """Return the files that are read beside raw files, and the plugins that read them."""
    from pipeline_atoms.importing.sources import find_beside, identify_readers

    return Dependencies(find_beside(run), identify_readers(run))


@hookimpl(trylast=True)
def data(run: DatasetRun) -> Summary:
    """Import the dataset file of `run` into `run.data`, with a report in `run.report`."""
    from pipeline_atoms.importing.dataset import import_dataset

    return import_dataset(run)


@hookimpl(trylast=True)
def graph(run: Run) -> Summary | None:
    """Write the graph of each sample of `run.data`, in the same order, into `run.graph`."""
    if not _does("graph", run):
        return None
    from pipeline_atoms.graphs import write_graphs

    options = run.get_section("graph", GraphOptions)
    return write_graphs(run.data, run.graph, options, run.make_provenance("graph"))


@hookimpl(trylast=True)
def infer(run: Run) -> Summary | None:
    """Run dynamics and properties of the section `infer`; write `run.inference`, trajectories."""
    if not _does("infer", run):
        return None
    from pipeline_atoms.simulations import simulate_run

    return simulate_run(run)


@hookimpl
def measure(task: Task, samples: Samples) -> Mapping[str, Any]:
    """Measure the deviation of direct forces from a gradient."""
    from pipeline_atoms.potential.conservation import report_conservation

    return report_conservation(task, samples)


@hookimpl(trylast=True)
def calibrate(run: Run) -> Mapping[str, Any]:
    """Calibrate a committee on the validation split."""
    from pipeline_atoms.ensembles.predictions import calibrate_committee

    return calibrate_committee(run)


@hookimpl(trylast=True)
def compare_committee(run: Run) -> list[Comparison] | None:
    """Return labels, means and half widths of a committee."""
    from pipeline_atoms.figures.committees import compare

    return compare(run)


@hookimpl(trylast=True)
def describe_training(run: Run) -> Mapping[str, Any]:
    """Return the ranges of the training structures; empty for data made by a plugin."""
    from pipeline_atoms.potential.training_ranges import describe_training as describe

    return describe(run)


@hookimpl(trylast=True)
def divider(run: Run, task: Task, ranks: Ranks) -> SampleDivider | None:
    """Return the divider of structures over ranks: domain decomposition by atoms."""
    if not _does("graph", run):
        return None
    from pipeline_atoms.domains import DividedSplits

    return DividedSplits(run, task, ranks)


@hookimpl(trylast=True)
def calculator(run: Run, device: str) -> Calculator:
    """Return the trained potential of a run as an ASE calculator.

    Raises:
        ValueError: The model is not a potential.
    """
    from pipeline_atoms.calculators.calculator import make_run_calculator

    return make_run_calculator(run, device)


@hookimpl
def figures() -> list[Figure]:
    """Return the figures of active learning, of dynamics and of properties of materials."""
    from pipeline_atoms.active_learning.learning_curve import FIGURE
    from pipeline_atoms.figures.catalogue import FIGURES

    return [*FIGURES, FIGURE]


@hookimpl
def commands() -> dict[str, tuple[str, Callable[..., None]]]:
    """Return the commands for potentials and files of structures."""
    from pipeline_atoms.cli import (
        driver,
        inspection,
        learning,
        load,
        new_dataset,
        plan_structure,
        predict,
        readers,
    )

    panels = {
        "Stages": [learning],
        "Before a run": [plan_structure, readers],
        "After a run": [predict, driver, load],
        "Something new": [inspection, new_dataset],
    }
    return {
        name: (panel, function)
        for panel, modules in panels.items()
        for module in modules
        for name, function in module.COMMANDS.items()
    }


@hookimpl
def findings(experiment: ExperimentRun) -> Findings:
    """Return numbers, tables, warnings and code on the use of potentials."""
    from pipeline_atoms.figures.findings import make_findings

    return make_findings(experiment)


@hookimpl
def example(info: ModelInfo) -> Example | None:
    """Return example data: alloys labelled by effective-medium theory."""
    if "infer" not in SECTIONS.get(info.data_kind, {}):
        return None
    from pipeline_atoms.testing.example_data import make_example

    return make_example(info)


@hookimpl
def readers() -> list[Reader]:
    """Return the formats of raw files; their dependencies are imported when they read."""
    return catalogue.READERS
