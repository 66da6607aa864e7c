"""Findings of a check of a machine or a cluster, and their output."""

from collections.abc import Iterable
from dataclasses import dataclass

import typer

from pipeline_core.status.output import align


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: Name of the check.
        detail: Result; empty if something is missing or wrong.
        cure: What to do if something is missing or wrong.
        needed: True if nothing works without it.
    """

    name: str
    detail: str
    cure: str = ""
    needed: bool = True

    @property
    def status(self) -> str:
        """One word."""
        return "ok" if self.detail else "missing"


def print_findings(findings: Iterable[Finding]) -> None:
    """Print one line per finding; exit with 1 if something needed is missing."""
    findings = list(findings)
    typer.echo(align([(f.name, f.status, f.detail or f.cure) for f in findings]))
    if any(f.needed and not f.detail for f in findings):
        raise typer.Exit(1)
