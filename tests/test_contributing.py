"""What CONTRIBUTING.md says of the tree is so."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w./-]+)`", TEXT)
PATHS = sorted({path for path in NAMED if "/" in path and not path.startswith("..")})


def read_layers() -> list[set[str]]:
    """The rooms of each line of the picture; a line without rooms goes on with the words before."""
    (picture,) = re.findall(r"<!-- layers -->\n((?:    .*\n)+)", TEXT)
    rooms = (re.match(r" {4}((?:\w+(?:  )?)*)", line) for line in picture.splitlines())
    return [set(match[1].split("  ")) - {""} for match in rooms if match and match[1]]


def test_the_picture_of_the_layers_is_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [
        c["layers"] for c in contracts["contracts"] if c.get("containers") == ["pipeline_core"]
    ]
    assert read_layers() == [set(re.split(r" [:|] ", layer)) for layer in layers]


@pytest.mark.parametrize("path", PATHS)
def test_every_file_that_is_named_exists(path):
    assert (ROOT / path).exists()
