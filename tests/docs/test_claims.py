"""Numbers of tables are those of their records: results of benchmarks, or kept evidence.

A table names its records in its section, in backticks: files of `tests/benchmarks/results`, or
experiments of `workflows/evidence`. Each number is rounded to the digits that are shown.
"""

import re
from dataclasses import replace

import pytest

from docs.claims import chgnet, egnn_esp, gauge_flows, htfbr, mace, readme, sources, tables

PAGES = {
    "README.md": readme.CLAIMS,
    "docs/models/chgnet.md": chgnet.CLAIMS,
    "docs/models/egnn_esp.md": egnn_esp.CLAIMS,
    "docs/models/gauge_flows.md": gauge_flows.CLAIMS,
    "docs/models/htfbr.md": htfbr.CLAIMS,
    "docs/models/mace.md": mace.CLAIMS,
}
CLAIMS = [(page, claim) for page, claims in PAGES.items() for claim in claims]
DESCRIPTIONS = {
    "| plugin | is | paper |",
    "| experiment | what it does |",
    "| option | what it does |",
    "| reader | matrices |",
    "| result | for |",
    "| `train.method` | what |",
}
"""Tables of words: nothing in them was measured."""


def find_table(page, claim):
    found = [t for t in tables.read_tables(tables.ROOT / page) if t.header == claim.header]
    assert len(found) == 1, f"{page}: {len(found)} tables {claim.header}"
    return found[0]


@pytest.mark.parametrize("page", PAGES)
def test_each_table_has_its_records(page):
    known = {claim.header for claim in PAGES[page]} | DESCRIPTIONS
    shown = {table.header for table in tables.read_tables(tables.ROOT / page)}
    assert shown <= known


@pytest.mark.slow
@pytest.mark.parametrize(("page", "claim"), CLAIMS, ids=[f"{p}: {c.header}" for p, c in CLAIMS])
def test_numbers_are_those_of_the_records(page, claim):
    table = find_table(page, claim)
    assert tables.compare(table, claim.compute()) == []
    for record in claim.records:
        assert f"`{record}`" in table.section, f"the section does not name {record}"


def test_a_changed_digit_of_a_page_is_found():
    page, claim = "docs/models/mace.md", mace.CLAIMS[0]
    table, known = find_table(page, claim), claim.compute()
    for place, row in enumerate(table.rows):
        for column, cell in enumerate(row):
            other = re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 1) % 10), cell)
            rows = [list(one) for one in table.rows]
            rows[place][column] = other
            assert tables.compare(replace(table, rows=rows), known)


def test_a_changed_digit_of_a_record_is_found(monkeypatch):
    page, claim = "docs/models/mace.md", mace.CLAIMS[0]
    table, content = find_table(page, claim), sources.read_result("mace_step_2cores")
    for place, case in enumerate(content["cases"]):
        if case.startswith("step"):
            ratios = list(content["ratio"])
            ratios[place] *= 1.1
            monkeypatch.setattr(sources, "read_result", lambda _: content | {"ratio": ratios})  # noqa: B023
            assert tables.compare(table, claim.compute())
            monkeypatch.undo()


@pytest.mark.parametrize(
    ("cell", "values", "agrees"),
    [
        ("0.745(12)", [0.7451, 0.0121], True),
        ("0.745(12)", [0.7451, 0.0131], False),
        ("3,690 at 4^4", [3690.4], True),
        ("11 to 29", [11.4, 28.6], True),
        ("11 to 29", [11.4, 29.6], False),
        ("2.6e-3", [0.00264], True),
        ("2.6e-3", [0.00266], False),
        ("12", [], False),
    ],
)
def test_numbers_are_rounded_to_the_digits_that_are_shown(cell, values, agrees):
    table = tables.Table("| x |", [[cell]], "")
    assert (tables.compare(table, [[values]]) == []) == agrees
