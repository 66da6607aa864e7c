"""`snakemake --report FILE.html` writes the engine's page; FILE.zip is Snakemake's own report.

`--report` always uses the reporter named "html", whatever plugins there are. In the process that
reads our Snakefile this name is our reporter; other workflows of the environment keep Snakemake's.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from snakemake_interface_report_plugins.registry import ReportPluginRegistry


def replace_reporter(order: Sequence[str]) -> None:
    """Make `--report` write the engine's page.

    Args:
        order: Experiments that come first on the page, others follow by name.
    """
    plugins = ReportPluginRegistry().plugins
    plugins["html"] = replace(
        plugins["html"], reporter=_derive_reporter(plugins["html"].reporter, order)
    )


def _derive_reporter(snakemakes: Any, order: Sequence[str]) -> type:
    class PageReporter(snakemakes):  # type: ignore[misc] # a type at run time only
        """Writes a page; leaves archives to Snakemake."""

        def render(self) -> None:
            if self.settings.path.suffix != ".html":
                super().render()
                return
            from pipeline_core.report.collect import write_report  # not needed to plan the work

            figures = _list_figures(self.results)
            first = [name for name in order if name in figures]
            names = dict.fromkeys([*first, *sorted(figures)])
            write_report(self.settings.path, {name: figures[name] for name in names})

    return PageReporter


def _list_figures(results: Any) -> dict[str, Path]:
    """Return experiment -> folder of its figures; experiments are Snakemake's categories."""
    return {
        category.name: Path(record.path).parent
        for category, headings in results.items()
        for records in headings.values()
        for record in records
    }
