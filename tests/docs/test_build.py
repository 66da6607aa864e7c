"""The documentation is built without a warning; formulas need no network."""

import subprocess

import pytest

from docs.pages import DOCS
from forked_programs import start_programs
from tiers import exhaustive

pytestmark = pytest.mark.slow


def build(folder, builder):
    program = [start_programs() / "forked-python", "-m", "sphinx", "--builder", builder]
    options = ["--fail-on-warning", "--keep-going", "--quiet"]
    done = subprocess.run(
        [*program, *options, DOCS, folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_pages_have_no_faults(tmp_path):
    """All of them are read and their references resolved; none is written."""
    build(tmp_path, "dummy")


@exhaustive
def test_pages_are_built_without_warnings(tmp_path):
    build(tmp_path, "html")
    page = (tmp_path / "models/mace.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert '<script src="http' not in page
    assert "<code" in page.partition("correlation")[2]
