"""Links of README and documentation lead somewhere, and commands that they name exist."""

import re
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

from pipeline_core.cli.app import app
from pipeline_core.stages.builtin import load_registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
COMMAND = re.compile(r"pipeline-core ([a-z][a-z-]*)((?: +[^ `#&|\n]+)*)")
CODE = re.compile(r"^```\w*\n(.*?)^```$|^ {4}([^\n]*)$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
"""Fenced blocks, indented lines, words in backticks."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8"))
    # The dot tells a file from the argument of a function in a formula.
    local = [link for link in links if "." in link and not link.startswith("http")]
    missing = [link for link in local if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_and_their_options_exist(page):
    group = typer.main.get_command(app)
    commands = {name: group.get_command(None, name) for name in group.list_commands(None)}
    code = "\n".join(map("".join, CODE.findall(page.read_text(encoding="utf-8"))))
    for name, rest in COMMAND.findall(code):
        assert name in commands, f"pipeline-core {name}"
        known = {option for parameter in commands[name].params for option in parameter.opts}
        known |= {o for parameter in commands[name].params for o in parameter.secondary_opts}
        words = rest.replace("'", "").split()
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known | {"--help"}, f"pipeline-core {name}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:^ {4}|`)make ([\w-]+)", page.read_text(), re.MULTILINE)
    assert set(named) <= targets


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_readme_answers_in_the_order_in_which_people_ask():
    headings = re.findall(r"^## (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    asked = ["Install", "Your data", "Your model", "Your cluster", "Is it right?", "More"]
    assert headings == asked


def test_an_environment_is_entered_before_its_programs_are_called():
    """In each way to install, and in no page that begins after it."""
    install = (ROOT / "README.md").read_text().partition("## Install")[2].partition("\n## ")[0]
    for way in re.findall(r"(?:^ {4}.*\n)+", install, re.MULTILINE):
        lines = [line.strip() for line in way.splitlines()]
        entered = next(i for i, line in enumerate(lines) if "source .venv/bin/activate" in line)
        programs = ("pip ", "pipeline-core ", "snakemake")
        called = [i for i, line in enumerate(lines) if line.startswith(programs)]
        assert called
        assert entered < min(called)


def test_each_model_has_a_page_with_its_options():
    for info in load_registry().list_models():
        page = ROOT / f"docs/models/{info.name}.md"
        assert f"{{options}} {info.name}\n" in page.read_text(encoding="utf-8")


def test_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
