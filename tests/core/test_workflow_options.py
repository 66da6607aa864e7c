"""The configuration of the workflow, as its file and Snakemake's command line give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_core.config.workflow import WorkflowOptions, read_options
from pipeline_core.config.yaml_files import validate_content


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a/b", ["a/b"]),
        ("a/b,c/d", ["a/b", "c/d"]),
        (" a/b , c/d, ", ["a/b", "c/d"]),
        (["a/b", "c/d"], ["a/b", "c/d"]),
        ("", []),
    ],
)
def test_experiments_are_a_list_or_words_between_commas(given, expected):
    options = validate_content(WorkflowOptions, {"experiments": given}, Path("config.yaml"))
    assert options.experiments == expected


@pytest.mark.parametrize("given", [3, {"a": "b"}, [1]])
def test_what_is_neither_is_refused(given):
    with pytest.raises(ValueError, match=r"config\.yaml: experiments"):
        validate_content(WorkflowOptions, {"experiments": given}, Path("config.yaml"))


def test_a_folder_without_the_file_computes_nothing(tmp_path):
    assert read_options(tmp_path).experiments == []
    (tmp_path / "config.yaml").write_text("experiments: chgnet/hfo2\n")
    assert read_options(tmp_path).experiments == ["chgnet/hfo2"]
    (tmp_path / "config.yaml").write_text("experimnts: []\n")
    with pytest.raises(ValueError, match="did you mean 'experiments'"):
        read_options(tmp_path)
