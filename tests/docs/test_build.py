"""The documentation is built without a warning; formulas need no network."""

from __future__ import annotations

import subprocess

import pytest

from docs.pages import DOCS
from forked_programs import start_programs

pytestmark = pytest.mark.slow


def test_pages_are_built_without_warnings(tmp_path):
    program = [start_programs() / "forked-python", "-m", "sphinx"]
    options = ["--fail-on-warning", "--keep-going", "--quiet"]
    done = subprocess.run(
        [*program, *options, DOCS, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "models/mace.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert '<script src="http' not in page
    assert "<code" in page.partition("correlation")[2]
