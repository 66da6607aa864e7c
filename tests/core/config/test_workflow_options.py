"""The configuration of the workflow, as its file and Snakemake's command line give it."""

from pathlib import Path

import pytest

from pipeline_core.config.workflow import WorkflowOptions, read_options
from pipeline_core.config.yaml_files import validate_content
from pipeline_core.workflow.rules import Plan


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


def test_what_snakemake_would_read_otherwise_than_it_is_written_is_refused(
    tmp_path, monkeypatch, capsys
):
    """Of a key that is given twice Snakemake takes the last."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPELINE_RANK", "4")
    (tmp_path / "workflows").mkdir()
    path = tmp_path / "workflows/config.yaml"
    path.write_text("experiments: [a/b]\n")
    config = {"experiments": ["c/d"]}  # what Snakemake gives, of the file or of --config
    assert Plan(config).options.experiments == ["c/d"]
    assert "nothing reads PIPELINE_RANK; did you mean PIPELINE_RANKS?" in capsys.readouterr().err
    path.write_text("experiments: [a/b]\nexperiments: [c/d]\n")
    message = "error: workflows/config.yaml:2: experiments is given a second time, first in line 1"
    with pytest.raises(SystemExit, match=message):
        Plan(config)


def test_a_folder_without_the_file_computes_nothing(tmp_path):
    assert read_options(tmp_path).experiments == []
    (tmp_path / "config.yaml").write_text("experiments: chgnet/hfo2\n")
    assert read_options(tmp_path).experiments == ["chgnet/hfo2"]
    (tmp_path / "config.yaml").write_text("experimnts: []\n")
    with pytest.raises(ValueError, match="did you mean 'experiments'"):
        read_options(tmp_path)
    for given in (3, {"a": "b"}, [1]):
        with pytest.raises(ValueError, match=r"config\.yaml: experiments"):
            validate_content(WorkflowOptions, {"experiments": given}, Path("config.yaml"))
