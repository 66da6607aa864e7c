"""Variables of the environment: all that are read are known. Oracle: the sources."""

import re
from pathlib import Path

import pytest

from pipeline_core.config.variables import VARIABLES, find_misspelled

ROOT = Path(__file__).parents[3]
SOURCES = ("pipeline_core", "kernels", "plugins", "profiles")


def test_every_variable_that_is_read_is_known():
    files = [p for folder in SOURCES for p in (ROOT / folder).rglob("*.*")]
    texts = [p.read_text() for p in files if p.suffix in (".py", ".yaml", ".c")]
    read = {name for text in texts for name in re.findall(r"PIPELINE_[A-Z_]+", text)}
    assert read - {"PIPELINE_CORE"} == set(VARIABLES)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PIPELINE_RANK", "PIPELINE_RANKS"),
        ("PIPELINE_HOUR", "PIPELINE_HOURS"),
        ("PIPELINE_PARTITIONS", "PIPELINE_PARTITION"),
        ("PIPELINE_TENSORBORD", "PIPELINE_TENSORBOARD"),
    ],
)
def test_a_misspelled_variable_is_told(name, meant):
    known = dict.fromkeys(VARIABLES, "1")
    others = {"PIPELINE_DATA": "x", "RANK": "0", "PIPE_RANKS": ""}  # are theirs
    told = list(find_misspelled(known | others | {name: "1"}))
    assert told == [f"nothing reads {name}; did you mean {meant}?"]
