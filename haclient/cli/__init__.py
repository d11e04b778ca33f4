"""The command ``haclient``: look at a cluster, send and receive, analyse telemetry, simulate storms.

Exit codes, for scripts: those of ``exit_codes``, the same for every command.

A command's module is imported when it is asked for.  A host of the analysis may have no proton, and one of
the client no pyspark.
"""

from __future__ import annotations

import click

from haclient.cli.exit_codes import codes_table
from haclient.cli.options import UnusableError
from haclient.command_line.groups import Program, version_option

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
)


class _Commands(Program):
    """The commands, also those that cannot run here."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or one that says what it lacks here."""
        try:
            return super().get_command(ctx, cmd_name)
        except ImportError as error:
            return _lacking(cmd_name, error)


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


@click.group(
    cls=_Commands,
    modules={name: f"haclient.cli.commands.{name}" for name in _COMMANDS},
    epilog=codes_table(),
)
@version_option("haclient")
def main() -> None:
    """Inspect a broker cluster and use it; see what connections go through: analyse, simulate.

    Where a command takes a URL, the variable HACLIENT_URL may hold it, and HACLIENT_USER, HACLIENT_PASSWORD
    or HACLIENT_PASSWORD_FILE the credentials.
    """
