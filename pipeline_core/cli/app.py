"""The command-line application, and the one place where errors become messages."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline_core import __version__
from pipeline_core.cli import (
    card,
    doctor,
    download,
    evidence,
    listings,
    new_files,
    new_plugin,
    plan,
    report,
    stages,
    status,
    validate,
    verify,
    working_folder,
)
from pipeline_core.stages.builtin import load_registry


class _Group(TyperGroup):
    """Group of the engine's commands and the plugins' commands, which are loaded when needed.

    Errors that the user can correct are printed as messages without traceback.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *load_plugin_commands()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or load_plugin_commands().get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, OSError) as error:
            if ctx.params["debug"]:
                raise
            typer.echo(f"error: {error}", err=True)
            typer.echo("(pipeline-core --debug, or PIPELINE_DEBUG=1, shows where)", err=True)
            raise typer.Exit(1) from None


@cache
def load_plugin_commands() -> Mapping[str, Any]:
    """Return the plugins' commands, by name."""
    group = typer.Typer()
    group.callback()(lambda: None)  # else a single command would not make a group
    for given in load_registry().manager.hook.commands():
        for name, (panel, function) in given.items():
            group.command(name, rich_help_panel=panel)(function)
    commands: Mapping[str, Any] = typer.main.get_group(group).commands
    return commands


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"pipeline-core {__version__}")
        raise typer.Exit


@app.callback()
def _set_common_options(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="PIPELINE_DEBUG", help="Show the traceback of errors.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version."),
    ] = False,
) -> None:
    """From first-principles data to a trained, evaluated and usable model and its figures.

    Each stage is a command; `snakemake` runs them in order.
    """


for _module, _panel in (
    (stages, "Stages"),
    (validate, "Before a run"),
    (plan, "Before a run"),
    (download, "Before a run"),
    (doctor, "Before a run"),
    (listings, "Before a run"),
    (status, "During a run"),
    (report, "After a run"),
    (card, "After a run"),
    (verify, "After a run"),
    (evidence, "After a run"),
    (working_folder, "Something new"),
    (new_files, "Something new"),
    (new_plugin, "Something new"),
):
    for _name, _command in _module.COMMANDS.items():
        app.command(_name, rich_help_panel=_panel)(_command)
