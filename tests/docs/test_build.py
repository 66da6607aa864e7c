"""The documentation is built without a warning; formulas need no network."""

from __future__ import annotations

import pytest

from docs.pages import DOCS
from processes import start

pytestmark = pytest.mark.slow


def test_pages_are_built_without_warnings(tmp_path):
    done = start(["-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", DOCS, tmp_path])
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "models/mace.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert '<script src="http' not in page
    assert "<code" in page.partition("correlation")[2]
