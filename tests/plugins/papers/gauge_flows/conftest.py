"""Experiments with made-up results that tests leave as they are."""

import pytest

from plugins.gauge_flows import made_up


@pytest.fixture(scope="session")
def loops(tmp_path_factory):
    expected = made_up.EXPECTED.read_text()
    return made_up.write_loops(tmp_path_factory.mktemp("loops"), expected=expected)


@pytest.fixture(scope="session")
def between(tmp_path_factory):
    expected = made_up.EXPECTED.read_text()
    return made_up.write_derivatives(tmp_path_factory.mktemp("derivatives"), expected=expected)
