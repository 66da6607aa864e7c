"""Experiments with made-up results, as the tests of the model have them."""

from plugins.gauge_flows.conftest import between, loops

__all__ = ["between", "loops"]
