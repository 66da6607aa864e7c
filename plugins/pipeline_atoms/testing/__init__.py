"""Conformance classes of potentials, and small data to try them on."""

import pytest

pytest.register_assert_rewrite("pipeline_atoms.testing.potentials")

from pipeline_atoms.testing.potentials import PotentialConformance  # noqa: E402 - rewritten from here on

__all__ = ["PotentialConformance"]
