"""The tests that every plugin runs, as classes to derive from in a test module.

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

`model`, `graph` and `train` are sections of the experiment that is used; small ones keep the tests
fast. `other` changes them to those of another graph, where the graph has no cutoff.
`PotentialConformance` is for models that derive from
`pipeline_atoms.potential.potential.Potential` and use its graphs. Another kind of model gives the
content of a dataset file in `dataset`, or None if it needs no data, and runs the other two. pytest
is needed; with `-p pipeline_core.testing.plugin` it ends with a table.

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
from pipeline_core.testing.runs import RunConformance  # noqa: E402

__all__ = ["PluginConformance", "RunConformance"]
