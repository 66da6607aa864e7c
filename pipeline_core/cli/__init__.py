"""The command line: one command a stage, and what helps to set up and to check a run."""

from pipeline_core.cli.app import app


def main() -> None:
    """Run the command line; the console script `pipeline-core`."""
    app(prog_name="pipeline-core")


__all__ = ["app", "main"]
