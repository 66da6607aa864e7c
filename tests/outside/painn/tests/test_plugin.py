"""The shared conformance suite of pipeline-core, on small settings."""

from typing import ClassVar

from pipeline_atoms.testing import PotentialConformance
from pipeline_core.testing import PluginConformance, RunConformance


class Small:
    """The experiment that the tests use."""

    plugin = "painn"
    model: ClassVar = {"features": 8, "layers": 2, "n_radial": 6}
    graph: ClassVar = {"cutoff": 4.0}


class TestPlugin(PluginConformance):
    plugin = "painn"


class TestPotential(Small, PotentialConformance):
    pass


class TestRun(Small, RunConformance):
    pass
