"""The command ``haclient``: inspect a cluster, send and receive, analyse telemetry, simulate storms.

All commands share the exit codes of ``exit_codes``.

The module of a command is imported only when it is used: a machine for the analysis may lack proton, and a
machine for the client may lack pyspark.
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
    """The commands, including ones that cannot run here."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or one that names the missing package."""
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
    """Use a broker cluster and inspect it; analyse the history of connections; simulate storms.

    The variable HACLIENT_URL may replace a URL argument, and HACLIENT_USER, HACLIENT_PASSWORD,
    HACLIENT_PASSWORD_FILE or HACLIENT_TOKEN_FILE may hold the credentials.
    """
