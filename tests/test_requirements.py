"""The lock files: what `make env` installs satisfies what the package declares.

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
LOCKS = ("requirements.lock", "torch.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDED = [*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["docs"]]


HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def read_lines(name: str) -> list[str]:
    """The requirements of a lock file, each with its hashes."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def read_locked() -> dict[str, str]:
    lines = [line for name in LOCKS for line in read_lines(name)]
    pins = [Requirement(HASH.sub("", line)) for line in lines]
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins)
    versions = {canonicalize_name(p.name): str(p.specifier).removeprefix("==") for p in pins}
    assert len(versions) == len(pins)
    return versions


@pytest.mark.parametrize("needed", NEEDED)
def test_every_requirement_is_locked_to_a_version_that_satisfies_it(needed):
    requirement = Requirement(needed)
    assert requirement.specifier.contains(read_locked()[canonicalize_name(requirement.name)])


def test_all_but_torch_have_hashes():
    assert all(HASH.search(line) for line in read_lines("requirements.lock"))
    assert {Requirement(line).name for line in read_lines("torch.lock")} == {"torch", "triton"}


@pytest.mark.parametrize("file", ["Makefile", "profiles/container/Containerfile"])
def test_hashes_are_asked_for_wherever_the_lock_is_installed(file):
    installs = re.findall(r"pip install.*requirements\.lock", (ROOT / file).read_text())
    assert installs
    assert all("--no-deps --require-hashes" in words for words in installs)


def test_continuous_integration_can_be_started():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!")
