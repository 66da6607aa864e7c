"""Conformance tests of potentials, and small example data."""

import pytest

pytest.register_assert_rewrite("pipeline_atoms.testing.potentials")

from pipeline_atoms.testing.potentials import PotentialConformance  # noqa: E402 - rewritten from here on

__all__ = ["PotentialConformance"]
