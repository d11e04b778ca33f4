"""The command ``haclient``: ``analyze`` telemetry, or ``simulate`` a storm and go through a real one.

Exit codes, for scripts: 0 done, 1 a threshold is broken, 2 usage, 3 the input or this machine cannot be
used (the reason is on standard error).

A command's module is imported when it is asked for.  A host of the analysis may have no proton, and one of
the client no pyspark.
"""

from __future__ import annotations

import importlib

import click

from haclient.cli.options import UnusableError

_COMMANDS = ("analyze", "simulate", "storm", "telemetry")


class _Commands(click.Group):
    """The commands, each from the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, also those that cannot run here."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or one that says what it lacks here."""
        if cmd_name not in _COMMANDS:
            return None
        try:
            module = importlib.import_module(f"haclient.cli.{cmd_name}")
        except ModuleNotFoundError as error:
            return _lacking(cmd_name, error)
        command: click.Command = getattr(module, cmd_name)
        return command


def _lacking(name: str, error: ModuleNotFoundError) -> click.Command:
    def refuse(**_: object) -> None:
        raise UnusableError(f"{name} cannot run here: {error}")

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        short_help=f"Cannot run here: {error}",
    )


@click.group(cls=_Commands)
def main() -> None:
    """What connections go through: analyse it, simulate it, or let it happen."""
