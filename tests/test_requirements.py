"""The lock file: what `make env` installs satisfies what the package declares.

The oracle is `packaging`, which pip itself decides with.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]


def read_locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins)
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


@pytest.mark.parametrize("needed", NEEDED)
def test_every_requirement_is_locked_to_a_version_that_satisfies_it(needed):
    requirement = Requirement(needed)
    assert requirement.specifier.contains(read_locked()[canonicalize_name(requirement.name)])


def test_the_makefile_and_the_lock_agree_on_torch():
    text = (ROOT / "Makefile").read_text()
    for name in ("torch", "triton"):
        assert f"{name}=={read_locked()[name]}\n" in text


def test_continuous_integration_can_be_started():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!")
