"""Words of docstrings, comments and messages, and the glossary. Oracle: the usage of the field.

A docstring begins with a noun phrase or an imperative. Objects state, hold and require; people say,
tell, know and ask.
"""

import ast
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("pipeline_core", "kernels", "plugins")
    for path in (ROOT / folder).rglob("*.py")
)
HEADLESS = re.compile(
    r"(What|Whether|How|Where|Who|Which|When|Why|That|Whose|Tell|Say|Ask|Let"
    r"|Return (what|whether|how|where|who|which|when))\b"
)
SPEECH = re.compile(r"(?<![.\w])(?<!def )(says?|said|tells?|told|knows?|known|asks?|asked)\b")
NEGATED_NOUN = re.compile(r"(?<!there )(?<!There )\bis no (?!longer|other|more)[a-z]")
MOST_SPEECH = 60

TERMS = [
    "active learning",
    "checkpoint",
    "data parallel",
    "domain decomposition",
    "early stopping",
    "ensemble",
    "exponential moving average",
    "fine-tuning",
    "ghost atoms",
    "gradient accumulation",
    "halo exchange",
    "hyperparameter",
    "learning-rate schedule",
    "micro-batch",
    "neighbour list",
    "provenance",
    "world size",
    "zero-shot error",
]
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
ROWS = [line for line in GLOSSARY.splitlines() if line.startswith("| ") and "`" in line]


def read_docstrings():
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text
            if isinstance(node, kinds):
                for place, text in read_attributes(node):
                    yield f"{path.relative_to(ROOT)}:{place}", text


def read_attributes(node):
    """Yield line and text of the docstrings below assignments."""
    for first, second in pairwise(node.body):
        match first, second:
            case ((ast.Assign() | ast.AnnAssign()), ast.Expr(ast.Constant(str(text)))):
                yield second.lineno, text


def find_lines(pattern):
    for path in SOURCES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_docstrings_begin_with_a_noun_or_a_verb():
    assert [
        f"{place}: {text[:60]}" for place, text in read_docstrings() if HEADLESS.match(text)
    ] == []


def test_objects_do_not_speak():
    found = list(find_lines(SPEECH))
    assert len(found) < MOST_SPEECH, "\n".join(found)


def test_what_is_not_something_is_said_with_not():
    assert list(find_lines(NEGATED_NOUN)) == []


@pytest.mark.parametrize("term", TERMS)
def test_a_standard_term_is_in_the_glossary_and_where_it_is_defined(term):
    """Of the files that the row names, one has the term in a docstring."""
    rows = [row for row in ROWS if term in row.split("|")[1] or term in row.split("|")[2]]
    assert rows, "no row of docs/glossary.md"
    places = [
        ROOT / name
        for row in rows
        for name in re.findall(r"`([\w/]+(?:\.py)?)`", row)
        if "/" in name
    ]
    texts = [
        path.read_text()
        for place in places
        for path in ([place] if place.is_file() else place.glob("*.py"))
    ]
    pattern = re.compile(re.sub(r"[ -]", r"[\\s-]+", term), re.IGNORECASE)
    assert any(pattern.search(text) for text in texts)


def test_files_of_the_glossary_exist_once():
    names = Counter(row.split("|")[1] for row in ROWS)
    assert max(names.values()) == 1
    assert all((ROOT / row.split("`")[-2]).exists() for row in ROWS)
