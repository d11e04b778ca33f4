"""The command ``haclient``: look at a cluster, send and receive, analyse telemetry, simulate storms.

Exit codes, for scripts: those of ``exit_codes``, the same for every command.

A command's module is imported when it is asked for.  A host of the analysis may have no proton, and one of
the client no pyspark.
"""

from __future__ import annotations

import gc
import importlib

import click

from haclient.cli.exit_codes import codes_table
from haclient.cli.options import UnusableError
from haclient.version import package_version

_COMMANDS = (
    "members",
    "send",
    "receive",
    "move",
    "watch",
    "explain",
    "help",
    "analyze",
    "telemetry",
    "simulate",
    "storm",
)


class _Commands(click.Group):
    """The commands, each from the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, also those that cannot run here."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or one that says what it lacks here."""
        if cmd_name not in _COMMANDS:
            return None
        # All that an import makes stays: looking for garbage meanwhile takes a third of the start.
        gc.disable()
        try:
            module = importlib.import_module(f"haclient.cli.commands.{cmd_name}")
        except ImportError as error:
            return _lacking(cmd_name, error)
        finally:
            gc.enable()
        command: click.Command = getattr(module, cmd_name)
        return command


def _lacking(name: str, error: ImportError) -> click.Command:
    def refuse(**_: object) -> None:
        raise UnusableError(f"{name} cannot run here: {error}")

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        short_help=f"Cannot run here: {error}",
    )


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's
    if wanted:
        click.echo(f"haclient {package_version()}")
        context.exit()


@click.group(cls=_Commands, epilog=codes_table())
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def main() -> None:
    """Inspect a broker cluster and use it; see what connections go through: analyse, simulate, let it happen.

    Where a command takes a URL, the variable HACLIENT_URL may hold it, and HACLIENT_USER, HACLIENT_PASSWORD
    or HACLIENT_PASSWORD_FILE the credentials.
    """
