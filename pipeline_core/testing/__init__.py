"""Conformance tests of plugins, as base classes for a test module.

    from pipeline_atoms.testing import PotentialConformance
    from pipeline_core.testing import PluginConformance, RunConformance

    class TestPlugin(PluginConformance):
        plugin = "my_model"

    class TestPotential(PotentialConformance):
        plugin = "my_model"
        model = {"width": 8}

    class TestRun(RunConformance):
        plugin = "my_model"
        model = {"width": 8}

`model`, `graph` and `train` are sections of the test's experiment; small models keep the tests
fast. `other` changes them to give another graph, where the graph has no cutoff.
`PotentialConformance` is for models that derive from
`pipeline_atoms.potential.potential.Potential` and use its graphs. Other kinds of models set
`dataset` to the content of a dataset file, or to None if they need no data, and run the other two
classes. pytest is required; with `-p pipeline_core.testing.plugin` it prints a table at the end.

    pipeline-core plugins --check my_model

runs the same tests on an installed plugin that has no test module of its own.
"""

import pytest

pytest.register_assert_rewrite(
    "pipeline_core.testing.belonging",
    "pipeline_core.testing.plugins",
    "pipeline_core.testing.runs",
)

from pipeline_core.testing.plugins import PluginConformance  # noqa: E402 - rewritten from here on
from pipeline_core.testing.projects import OnProject  # noqa: E402
from pipeline_core.testing.runs import RunConformance  # noqa: E402

__all__ = ["OnProject", "PluginConformance", "RunConformance"]
