"""What pages show and do not run: commands and options that there are, experiments that are valid.

What is in blocks of `bash` is run by `test_how_to`; everything else is parsed by the programs
themselves.
"""

from __future__ import annotations

import re
import shlex

import pytest
import yaml
from snakemake.cli import get_argument_parser
from typer.main import get_command

from docs.pages import DOCS, ROOT
from pipeline_core.cli import app
from pipeline_core.config.experiments import ExperimentFile
from pipeline_core.config.workflow import WorkflowOptions
from pipeline_core.config.yaml_files import validate_content
from pipeline_core.stages.builtin import load_registry

PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md"))]
PROGRAMS = ("pipeline-core", "snakemake", "make")


def list_commands(text: str) -> list[str]:
    """Return the commands of our programs in a page, without comments and redirections."""
    blocks = re.findall(r"^```bash\n(.*?)^```$|^ {4}([^\n]*)$", text, re.MULTILINE | re.DOTALL)
    shown = "\n".join(line for block in blocks for line in block)
    lines = [line.strip().partition(" # ")[0] for line in shown.splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [p.partition(" > ")[0] for p in parts if re.match(rf"({'|'.join(PROGRAMS)})( |$)", p)]


COMMANDS = sorted({c for page in PAGES for c in list_commands(page.read_text(encoding="utf-8"))})


def test_there_are_commands_of_all_kinds():
    assert len(COMMANDS) > 40
    assert {command.split()[0] for command in COMMANDS} == set(PROGRAMS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("pipeline-core ")])
def test_a_command_of_the_engine_has_these_options(command):
    group = get_command(app)
    context = group.make_context("pipeline-core", shlex.split(command)[1:])
    name, sub, words = group.resolve_command(context, [*context._protected_args, *context.args])
    assert sub is not None
    if "-h" not in words and "--help" not in words:
        sub.make_context(name, list(words), parent=context)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("snakemake")])
def test_a_command_of_snakemake_has_these_options(command):
    found = get_argument_parser().parse_args(shlex.split(command)[1:])
    settings = dict(pair.split("=", 1) for pair in found.config or [])
    assert settings.keys() <= WorkflowOptions.model_fields.keys()
    plugins = [info.name for info in load_registry().list_models()]
    known = {"papers", *(f"paper_{name}" for name in plugins)}
    for target in found.targets:
        assert target in known or target.startswith("results/")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_a_command_of_make_has_a_rule(command):
    rules = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    target, *variables = command.split()[1:]
    assert target in rules
    for variable in variables:
        name, _, value = variable.partition("=")
        assert name in ("NAME", "PYTHON")
        assert name != "NAME" or (ROOT / f"tests/benchmarks/{value}.py").exists()


def list_experiments() -> list[tuple[str, str]]:
    """Return page and text of each block that is a whole experiment file."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        name = str(page.relative_to(ROOT))
        found += [(name, b) for b in blocks if re.search(r"^plugin: ", b, re.MULTILINE)]
    return found


EXPERIMENTS = list_experiments()


@pytest.mark.parametrize("number", range(len(EXPERIMENTS)))
def test_a_file_of_a_page_is_valid(number, tmp_path):
    """An experiment, or the data of a plugin."""
    content, path = yaml.safe_load(EXPERIMENTS[number][1]), tmp_path / "of_page.yaml"
    path.write_text(EXPERIMENTS[number][1])
    info = load_registry().get_model_info(content["plugin"])
    if not content.keys() <= ExperimentFile.model_fields.keys():
        assert info.dataset is not None
        validate_content(info.dataset, content, path)
        return
    content.setdefault("description", EXPERIMENTS[number][0])
    file = validate_content(ExperimentFile, content, path)
    for key, model in info.section_models.items():
        validate_content(model, getattr(file, key), path, (key,))
