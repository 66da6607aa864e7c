"""`snakemake --logger pipeline`, asked of Snakemake itself."""

import io
import logging
import re
from types import SimpleNamespace

import pytest
from rich.console import Console
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

from pipeline_core.workflow.rules import Plan
from snakemake_logger_plugin_pipeline import LogHandler
from workflows import toy

LOGGER = ("--logger", "pipeline")


@pytest.fixture
def project(tmp_path):
    toy.write_project(tmp_path / "project")
    return tmp_path / "project"


def test_snakemake_finds_it():
    assert LoggerPluginRegistry().get_plugin("pipeline").log_handler is LogHandler


@pytest.mark.slow
def test_news_in_place_of_a_wall(project):
    text = toy.snakemake(project, *LOGGER)
    for name in ("toy/first water data", "toy/first base train", "other/first figures"):
        assert re.search(rf"^\d\d:\d\d:\d\d {name}: done$", text, re.MULTILINE)
    for word in ("Shell command", "resources:", "Select jobs", "wildcards:"):
        assert word not in text.partition("Select jobs to execute...")[2]  # before the first


@pytest.mark.slow
def test_a_failure_is_explained(project):
    path = project / "workflows/experiments/toy/first.yaml"
    path.write_text(path.read_text().replace("width: 4", "width: 13"))
    text = toy.snakemake(project, *LOGGER, ok=False)
    assert "train has failed (job " in text
    assert "  | error: thirteen neurons bring bad luck; take twelve" in text
    assert "CalledProcessError" not in text
    assert "What has failed:\n  toy/first base train: failed" in text
    assert "other/first figures: done" in text


@pytest.mark.slow
def test_a_dry_run_is_as_without_it(project):
    assert toy.plan_jobs(project, *LOGGER) == toy.plan_jobs(project)
    assert "Shell command: pipeline-core graph" in toy.snakemake(project, "-n", *LOGGER)


def make_record(event, level=logging.INFO, text="", **facts):
    record = logging.LogRecord("snakemake", level, "", 0, text, (), None)
    vars(record).update(event=event, **facts)
    return record


def test_on_a_terminal(monkeypatch):
    """The picture stays at the end; what is worth a warning stands above it."""
    file = io.StringIO()
    settings = SimpleNamespace(stdout=False, dryrun=False)
    handler = LogHandler(settings, None)
    handler._console = Console(file=file, force_terminal=True, width=80, highlight=False)
    monkeypatch.setattr(Plan, "latest", SimpleNamespace(read_overviews=list))
    handler.emit(make_record(None, text="Building DAG of jobs..."))
    handler.emit(make_record(LogEvent.JOB_STARTED, jobs=[1]))
    handler.emit(make_record(None, text="Select jobs to execute..."))
    handler.emit(make_record(None, logging.WARNING, "something odd"))
    handler.emit(make_record(LogEvent.PROGRESS, done=1, total=2))
    handler.close()
    handler.close()
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", file.getvalue())
    assert "Building DAG" in shown
    assert "Select jobs" not in shown
    assert "something odd" in shown
    assert shown.rstrip().endswith("1 of 2 jobs have ended")
