"""The contract of a plugin: all hooks, with their arguments and return values.

A plugin is a Python package with one entry point in the group `pipeline_core` that names a module
(or an object) holding functions marked with `pipeline_core.hookimpl`. The smallest model needs
`model` and `task`: with these two the engine imports data, builds graphs, balances batches, trains
on any number of ranks, evaluates, runs molecular dynamics and draws. Every other hook replaces one
part and leaves the rest as it is.

For a run the engine calls the hooks of that run's plugin, its own defaults (`trylast`) and the
observers; no other model plugin is called. The eight stage hooks are `firstresult`: the first
implementation that returns something other than None has done the stage; None leaves it to the
engine, so return a summary on every rank. An observer wraps stage hooks::

    @hookimpl(wrapper=True)
    def train(run):
        started = time.perf_counter()
        try:
            return (yield)
        finally:
            report(run, time.perf_counter() - started)

Keep the module behind the entry point light: it is imported when Snakemake builds its graph of
jobs. Import torch and the model inside the hooks.

The contract has a version, `HOOKS_VERSION`, which a plugin can name in its module:

    HOOKS_VERSION = "1.2"

A new hook or argument raises the minor number. A hook to be removed is first deprecated:
`@hookspec(warn_on_impl=FutureWarning(cure))` for a hook, `warn_on_impl_args` for an argument. A
plugin that implements it still works, is listed with the cure, and warns of it; its removal raises
the major number. A plugin made for a later major version is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pipeline_core import hookspec

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

    from pipeline_core.config.datasets import DatasetFile
    from pipeline_core.config.experiments import ExperimentFile, Variant
    from pipeline_core.distributed.ranks import Ranks
    from pipeline_core.figures import Figure
    from pipeline_core.figures.findings import Findings
    from pipeline_core.figures.predictions import Comparison
    from pipeline_core.model_info import ModelInfo
    from pipeline_core.project.dataset_run import DatasetRun, Dependencies
    from pipeline_core.project.run import ExperimentRun, Run
    from pipeline_core.status.pace import Position
    from pipeline_core.task import Samples, Task
    from pipeline_core.training.micro_batches import SampleDivider

HOOKS_VERSION: Final = "1.2"
"""Version of the contract: major (breaks plugins) and minor (adds to it)."""

Summary = Mapping[str, Any]
"""JSON-able summary of a stage, printed at its end and kept in its record."""


@dataclass(frozen=True)
class Example:
    """Small test data for models that bring none of their own.

    Attributes:
        dataset: Content of the dataset file.
        files: Raw files beside it, name to text.
        sections: Sections of an experiment with these data, without the model's own options.
        suites: Further conformance classes for such models, as module:class.
    """

    dataset: Mapping[str, Any]
    files: Mapping[str, str]
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    suites: tuple[str, ...] = ()


class PipelineSpecs:
    """All hooks: the plugin itself, the eight stages in order, further contributions, observers.

    A plugin implements any of them, with any subset of their arguments.
    """

    @hookspec
    def model(self) -> ModelInfo:
        """Describe the model: name, citation, options, kind of data, what it can predict.

        Called while Snakemake builds its graph of jobs: import nothing heavy.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def task(self, run: Run) -> Task | None:
        """Build what training and evaluation need: module, samples, loss, cost of a sample.

        Called on every rank, in every stage that needs the model. Weights are random, drawn from
        torch's global generator, which the engine has seeded; the engine loads trained weights
        itself. `run.metadata` is None before training and the trained task's metadata later, for a
        model whose shapes follow from its training; it is also set where a training starts from a
        trained model.
        """

    @hookspec(firstresult=True)
    def data(self, run: DatasetRun) -> Summary | None:
        """Turn raw files, or nothing, into `run.data`: samples, splits, reference energies.

        A plugin divides rows of a table with `data.splits.divide_rows`, and other samples of its
        own with `divide` beside it, which takes equal samples from `data.duplicates`.
        """

    @hookspec(firstresult=True)
    def graph(self, run: Run) -> Summary | None:
        """Read `run.data`, write `run.graph`: the structure of each sample.

        Neighbour and bond graphs for potentials; a dimension tree, masks and loops for other
        models. It may depend on the data, the seed and the section `graph`, not on `model`:
        variants in which these are equal share one file. A model without structure lists the stage
        in `ModelInfo.without`.
        """

    @hookspec(firstresult=True)
    def partition(self, run: Run) -> Summary | None:
        """Read `run.graph`, write `run.partition`: how ranks share the work.

        Variants in which the sections `graph`, `partition` and `model` are equal share one file. A
        plugin with a training loop of its own may omit the stage.
        """

    @hookspec(firstresult=True)
    def train(self, run: Run) -> Summary | None:
        """Read data, graph, partition; write `run.model`, `run.history`; resume from `run.state`.

        Called on every rank; only rank 0 writes. Override it only if the model is not trained by
        gradient steps: `training.fits.fit_run` does everything but the fit itself.
        """

    @hookspec(firstresult=True)
    def evaluate(self, run: Run) -> Summary | None:
        """Read `run.model` and the held-out samples; write `run.metrics` and `run.predictions`."""

    @hookspec(firstresult=True)
    def infer(self, run: Run) -> Summary | None:
        """Read `run.model` and use it: write `run.inference` and the files that belong to it.

        A model that is only evaluated may omit the stage.
        """

    @hookspec(firstresult=True)
    def profile(self, run: Run) -> Summary | None:
        """Read `run.model`, measure its running time on this machine, write `run.profile`.

        Time and memory of training steps; a plugin may measure more. One without training steps
        may omit the stage.
        """

    @hookspec(firstresult=True)
    def draw(self, run: ExperimentRun) -> Summary | None:
        """Draw the figures of an experiment from the small files of its variants."""

    @hookspec
    def readers(self) -> list[Any]:
        """Raw formats that the data stage can also read, `pipeline_atoms.readers.Reader`."""
        raise NotImplementedError

    @hookspec
    def figures(self, model: str | None) -> list[Figure]:
        """Figures that the figures stage can draw from the files of evaluate, infer and profile.

        `model` is the name of a model of the experiment, or None for figures of any model.
        """
        raise NotImplementedError

    @hookspec
    def commands(self) -> Mapping[str, tuple[str, Callable[..., None]]]:
        """Give commands of `pipeline-core`, by name.

        Returns:
            The heading under which `pipeline-core --help` lists a command, and a typer function,
            which imports heavy code only when it is called.
        """
        raise NotImplementedError

    @hookspec
    def findings(self, experiment: ExperimentRun) -> Findings | None:
        """Give the report's contents besides figures: numbers, tables, warnings, code."""

    @hookspec(firstresult=True)
    def calculator(self, run: Run, device: str) -> Any:
        """Give the trained model of a run as an ASE calculator on `device`, a torch device name."""

    @hookspec
    def check(self, run: Run) -> None:
        """Check the sections of an experiment against each other, before anything runs.

        Raises:
            ValueError: Parts of the run do not fit together; the message begins with the key.
        """

    @hookspec(firstresult=True)
    def dataset_model(self, content: Mapping[str, Any]) -> type[DatasetFile] | None:
        """Give the pydantic model of a dataset file whose plugin brings none (`ModelInfo.dataset`).

        Called while Snakemake builds its graph of jobs: import nothing heavy.
        """

    @hookspec
    def check_data(self, run: DatasetRun) -> None:
        """Check a dataset before it is imported.

        Raises:
            ValueError: A raw file is missing, or does not match the dataset file.
        """

    @hookspec(firstresult=True)
    def dependencies(self, run: DatasetRun) -> Dependencies | None:
        """Give the inputs of the import of a dataset besides its raw files."""

    @hookspec
    def measure(self, run: Run, task: Task, samples: Samples) -> Mapping[str, Any] | None:
        """Measure a trained model on a split beyond its errors; the result is added to the metrics.

        Called on rank 0, if samples are evaluated whole.
        """

    @hookspec(firstresult=True)
    def calibrate(self, run: Run) -> Mapping[str, Any] | None:
        """Calibrate the committee with the first member `run` by the predictions of all members.

        The result becomes `committee` of the metrics.
        """

    @hookspec(firstresult=True)
    def compare_committee(self, run: Run) -> list[Comparison] | None:
        """Give the comparison of a committee's means with labels; None to compare each member."""

    @hookspec(firstresult=True)
    def describe_training(self, run: Run) -> Mapping[str, Any] | None:
        """Describe the range of the training samples of a run, for the card of its model."""

    @hookspec(firstresult=True)
    def divider(self, run: Run, task: Task, ranks: Ranks) -> SampleDivider | None:
        """Give the domain decomposition of single samples, for `partition.parts: graph`."""

    @hookspec(firstresult=True)
    def variants(self, file: ExperimentFile, path: Path) -> Mapping[str, Variant] | None:
        """Give the variants that the section `learn` of an experiment stands for, by name.

        Raises:
            ValueError: The section, or the name of another variant, does not fit; the message
                begins with `path`.
        """

    @hookspec(firstresult=True)
    def variant_dataset(self, run: Run, base: Run) -> DatasetRun | None:
        """Give the dataset of a variant of `variants`, derived from the dataset of the base.

        It has a command of its own (`DatasetRun.grows`); None for the dataset that the run names.
        """

    @hookspec
    def rules(self) -> Mapping[str, Sequence[Callable[[ExperimentRun, Run], Any]]]:
        """Give functions for rules of Snakemake besides those of the stages.

        Returns:
            File in `workflows/rules`, without its ending, to functions of the experiment and the
            run of a job, which its rules call by name, such as `plan.pick_inputs`. They return
            inputs, as a list, parameters, as a dictionary, or a number of threads.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def example(self, info: ModelInfo) -> Example | None:
        """Give small data on which the conformance classes test models of a kind of data."""

    @hookspec
    def sections(self, info: ModelInfo) -> Mapping[str, type[BaseModel]] | None:
        """Give the options of stages that this plugin does for models of other plugins.

        A plugin without a model may do stages for models of other packages. Stages of a kind of
        data (`info.data_kind`), such as the graphs of all potentials, are implemented `trylast`, so
        that a model can still replace them, with its own sections (`ModelInfo.sections`). Additions
        to one model (`info.name`), such as the studies of a paper, are implemented `tryfirst`, with
        options derived from the model's own. Both hooks return None for all other runs. The source
        of the plugin, or of the package of the options, is part of the model's fingerprint. Import
        nothing heavy.

        Returns:
            Stages to pydantic models; None for models without additions from this plugin.
        """
        raise NotImplementedError

    @hookspec
    def epoch(self, run: Run, record: Mapping[str, Any]) -> None:
        """Receive a finished epoch on rank 0: `record` is the line just added to `run.history`.

        The engine's trainer calls it; so may a plugin with a training loop of its own. The record
        has the number `epoch`, and where they apply `train` and `val` (each with `loss`), `mae`,
        `lr` and `samples_per_s`, as in `pipeline_core.training.history`; and `step`, a word for
        the unit of work if it is not an epoch. The number 0, with None for `train`, is for the
        weights that a fine-tuning starts from.
        """

    @hookspec
    def progress(self, run: Run, position: Position) -> None:
        """Receive the position of a training, on rank 0: after each epoch, and at times within it.

        The engine's trainer calls it, before `epoch`.
        """
