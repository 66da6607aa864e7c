"""Conformance tests of every plugin with a model."""

import subprocess
import sys
from typing import ClassVar

import pytest

from pipeline_core.fields import FIELDS
from pipeline_core.registry import Plugin
from pipeline_core.stages.builtin import load_registry

HEAVY = ("torch", "ase", "pymatgen", "matplotlib")


class PluginConformance:
    """The plugin is found, describes its model, and stays light until it is used."""

    plugin: ClassVar[str]
    """Name of the model."""

    @pytest.fixture(scope="class")
    @classmethod
    def listed(cls) -> Plugin:
        """The plugin as `pipeline-core plugins` lists it."""
        plugins = load_registry().plugins
        named = [p for p in plugins if p.model is not None and p.model.name == cls.plugin]
        broken = [f"{p.name}: {p.error}" for p in plugins if p.error]
        assert len(named) == 1, f"{len(named)} plugins are called {cls.plugin!r}; broken: {broken}"
        return named[0]

    def test_the_model_is_described(self, listed: Plugin) -> None:
        """Its summary and its citation are not empty."""
        info = listed.model
        assert info is not None
        assert info.summary.strip()
        assert info.citation.strip()

    def test_each_stage_has_an_implementation(self, listed: Plugin) -> None:
        """It builds a task, or implements all stages that need one."""
        # Stages that a plugin leaves to the engine need its task.
        stages = {"train", "evaluate", "infer"}
        assert "task" in listed.hooks or stages <= set(listed.hooks)

    def test_predicted_fields_are_known(self, listed: Plugin) -> None:
        """The fields that it predicts for structures are among those of the engine."""
        info = listed.model
        assert info is not None
        if info.data_kind == "structure":
            assert set(info.predicts) <= set(FIELDS)

    def test_options_refuse_unknown_keys(self, listed: Plugin) -> None:
        """A typing error in an experiment cannot pass unnoticed."""
        info = listed.model
        assert info is not None
        for options in (info.options, *info.sections.values()):
            assert options.model_config.get("extra") == "forbid", (
                f"{options.__name__} ignores typing errors; derive it from "
                "pipeline_core.config.sections.Section"
            )

    def test_options_are_documented(self, listed: Plugin) -> None:
        """Its options have docstrings and a complete schema."""
        info = listed.model
        assert info is not None
        for options in (info.options, *info.sections.values()):
            assert (options.__doc__ or "").strip(), f"{options.__name__} has no docstring"
            schema = options.model_json_schema()
            assert set(schema.get("properties", {})) == set(options.model_fields)

    def test_nothing_heavy_is_imported_to_find_it(self, listed: Plugin) -> None:
        """Planning a workflow imports neither torch nor the model."""
        module = listed.target.partition(":")[0]
        code = f"import sys, {module}; print(*set(sys.modules) & set({HEAVY}))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert not done.stdout.split(), f"{listed.target} imports {done.stdout}; do it in the hooks"
