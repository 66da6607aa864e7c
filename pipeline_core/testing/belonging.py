"""Provenance tests: each stage accepts artifacts of its own run, and no others.

A foreign artifact is one that a run with a single difference would have written in its place.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pipeline_core.artifacts import store
from pipeline_core.config.experiments import merge_sections
from pipeline_core.config.sections import TrainOptions
from pipeline_core.model_info import MAKERS
from pipeline_core.project.project import Project
from pipeline_core.project.run import READS, Run
from pipeline_core.testing.damage import keep_content
from pipeline_core.testing.projects import OnProject, call, prepare

DIFFERENCES: Final = ("seed", "graph", "split", "plugin")
"""Differences of the other run."""
_RESULTS: Final = ("model", "metrics", "predictions", "inference")


@dataclass(frozen=True)
class Pair:
    """A finished run, and one that differs in one thing.

    Attributes:
        project: Project of the finished run.
        run: The finished run.
        other: The run that differs.
        difference: One of `DIFFERENCES`.
    """

    project: Project
    run: Run
    other: Run
    difference: str

    def has_foreign(self, name: str) -> bool:
        """Return True if the run has an artifact, and the other run a different one."""
        if name == "data":
            return self.difference == "split"
        shared = name == "graph" and self.difference == "seed" and self.run.has_default_graph
        return getattr(self.run, name).is_file() and not shared

    def write_foreign(self, name: str) -> None:
        """Replace an artifact by the one that the other run would have written."""
        path, same = getattr(self.run, name), self.difference == "plugin" or name in _RESULTS
        if name == "history":
            path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        elif same and name != "data":
            facts = {**store.read_provenance(path), **self.other.make_provenance(MAKERS[name])}
            by = {"plugin": "another"} if self.difference == "plugin" else {}
            _seal_again(path, facts | by)
        else:
            shutil.copy(getattr(self.other, name), path)


class OnFinishedRun(OnProject):
    """Base of the classes that work on a run in which all stages have run."""

    @pytest.fixture(scope="class")
    @classmethod
    def trained(cls, run: Run) -> Run:
        """The run after its training."""
        call(run, "train")
        return run

    @pytest.fixture(scope="class")
    @classmethod
    def evaluated(cls, trained: Run) -> Run:
        """The run after its evaluation."""
        call(trained, "evaluate")
        return trained

    @pytest.fixture(scope="class")
    @classmethod
    def finished(cls, evaluated: Run) -> Run:
        """The run after all stages."""
        if evaluated.has_stage("infer"):
            call(evaluated, "infer")
        return evaluated

    @pytest.fixture(scope="class", params=DIFFERENCES)
    @classmethod
    def pair(
        cls,
        request: pytest.FixtureRequest,
        project: Project,
        finished: Run,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Pair:
        """The finished run beside one that differs in one thing."""
        folder = tmp_path_factory.mktemp(request.param)
        other = cls.make_other(request.param, project, finished, folder)
        return Pair(project, finished, other, request.param)

    @classmethod
    def make_other(cls, difference: str, project: Project, run: Run, folder: Path) -> Run:
        """Return a run that differs in one thing, up to its graph and partition."""
        shutil.copytree(project.workflows, folder / "workflows")
        if difference == "split":
            if run.dataset is None:
                pytest.skip("the model needs no dataset")
            path = folder / "workflows/datasets" / run.dataset.path.name
            _edit(path, {"split": {"seed": 1}})
        changes: Mapping[str, Any] = {"seed": 1} if difference == "seed" else {}
        if difference == "graph":
            changes = cls.other or _shrink_cutoff(run)
        _edit(folder / f"workflows/experiments/{run.experiment}.yaml", changes)
        other = Project(folder / "workflows", folder / "results", project.registry)
        made = other.run(run.experiment)
        prepare(made)
        for name in _list_results(run):  # copies: their contents are not read
            getattr(made, name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(getattr(run, name), getattr(made, name))
        return made

    def test_artifacts_say_what_they_were_made_from(self, finished: Run) -> None:
        """Each names options, seed, plugin and all inputs of its stage."""
        for name, stage in MAKERS.items():
            path = getattr(finished, name)
            if path.is_file():
                facts = store.read_provenance(path)
                read = {n for n, p in finished.list_inputs(stage).items() if p.is_file()}
                assert {"options", "seed", "plugin"} <= facts.keys(), path
                assert set(facts["inputs"]) == read, path

    @pytest.mark.parametrize("name", ["data", *MAKERS, "history"])
    def test_what_is_of_another_run_is_refused_by_name(self, pair: Pair, name: str) -> None:
        """No stage reads an artifact of another seed, graph, split or plugin."""
        if not pair.has_foreign(name):
            pytest.skip("the other run has the same")
        path: Path = getattr(pair.run, name)
        read = [stage for stage in READS if name in READS[stage] and stage != "figures"]
        stages = [stage for stage in read if pair.run.has_stage(stage)]
        with keep_content(path):
            pair.write_foreign(name)
            for stage in stages:
                _expect_refusal(path, partial(call, pair.run, stage))
            _expect_refusal(path, partial(draw, pair.project, pair.run))

    def test_a_training_does_not_go_on_from_the_state_of_another(self, pair: Pair) -> None:
        """It starts afresh, and names the difference."""
        from pipeline_core.task import build_task
        from pipeline_core.training import checkpoint

        path = pair.run.state / "last.pt"
        if not path.is_file() or pair.difference == "plugin":
            pytest.skip("the plugin trains by itself, or another plugin has another source")
        options = pair.other.get_section("train", TrainOptions)
        facts = checkpoint.resume_key(pair.other, options)
        module = build_task(pair.run).module
        found = checkpoint.compare_state(path, pair.run.model_info, facts, options.epochs, module)
        obstacle = found.obstacle
        assert obstacle is not None
        assert obstacle.startswith(f"{path}: saved with another ")


def _expect_refusal(path: Path, read: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="make it new: pipeline-core") as refused:
        read()
    assert str(refused.value).startswith(f"{path}: ")


def _seal_again(path: Path, facts: Mapping[str, Any]) -> None:
    if path.suffix == ".json":
        store.write_json(path, {**store.read_json(path), "provenance": facts})
        return
    with store.open_content(path) as file:
        content = file.read()
    with store.write_sealed(path, facts) as new:
        new.write(content)


def draw(project: Project, run: Run) -> None:
    """Draw the experiment of a run as its command does."""
    experiment = project.load_experiment(run.experiment)
    run.registry.select_hook("draw", run.model_info.name)(run=experiment)


def _edit(path: Path, change: Mapping[str, Any]) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump(merge_sections(content, dict(change))), encoding="utf-8")


def _list_results(run: Run) -> list[str]:
    return [name for name in _RESULTS if run.has_stage(MAKERS[name])]


def _shrink_cutoff(run: Run) -> Mapping[str, Any]:
    if not run.has_stage("graph"):
        pytest.skip("the model has no stage 'graph'")
    cutoff = getattr(run.sections["graph"], "cutoff", None)
    if cutoff is None:
        pytest.skip("the class names no other graph (its attribute `other`)")
    return {"graph": {"cutoff": 0.9 * cutoff}}
