"""The directive `reproduction`: the numbers of a paper beside ours, from kept evidence.

    ```{reproduction} mace
    ```

The tables are those of the report; an experiment without evidence leaves its numbers empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pipeline_core.figures import reproduction
from pipeline_core.figures.evidence import list_evidence, load_evidence
from pipeline_core.figures.findings import Table
from pipeline_core.project.project import Project, list_experiments
from pipeline_core.report import paper
from pipeline_core.stages.builtin import load_registry

ROOT = Path(__file__).parents[2]


class Reproduction(SphinxDirective):
    """Counts and tables of a paper."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return them."""
        lines = list(format_paper(self.arguments[0]))
        return self.parse_text_to_nodes("\n".join(lines))


def format_paper(plugin: str) -> Iterator[str]:
    """Yield the lines of a page in Markdown."""
    project = Project(ROOT / "workflows", ROOT / "results", load_registry())
    report = read_report(plugin, project)
    yield f"{report['paper']}. {report['citation']}."
    yield ""
    yield f"**{paper.format_counts(report)}**"
    yield ""
    for table in paper.make_tables(report):
        yield f"**{table.title}**"
        yield ""
        yield table.note
        yield ""
        yield from format_table(table)


def read_report(plugin: str, project: Project) -> dict[str, Any]:
    """Return what all experiments of a plugin that have evidence say of the paper's numbers."""
    kept = [name for name in list_evidence(project.workflows) if name.startswith(f"{plugin}/")]
    reports = [reproduction.compare(load_evidence(name, project)) for name in kept]
    merged = paper.merge_reports([report for report in reports if report])
    if plugin in merged:
        return merged[plugin]
    nothing = replace(project, results=Path("no results"))
    first, *_ = list_experiments(project.workflows / "experiments" / plugin)
    report = reproduction.compare(nothing.load_experiment(first))
    assert report is not None, f"{plugin} has no expected.yaml"
    return paper.merge_report([report])


def format_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield _join(table.header)
    yield _join(["---"] * len(table.header))
    yield from map(_join, table.rows)
    yield ""


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("reproduction", Reproduction)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
