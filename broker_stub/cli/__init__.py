"""The commands: ``serve`` one member, run a ``pair``, and manage members that run.

Exit codes, for scripts: 0 done, 1 refused (the reason is on standard error), 2 usage,
3 not reachable.

A command's module is imported when it is asked for: a member starts without what only people look at.
"""

from __future__ import annotations

import gc
import importlib

import click

from haclient.version import package_version

_MODULES = {
    "serve": "serve",
    "pair": "pair",
    "status": "manage",
    "promote": "manage",
    "demote": "manage",
    "set-members": "manage",
    "queue": "declare",
    "exchange": "declare",
    "binding": "declare",
    "link": "link",
    "site": "site",
}


class _Commands(click.Group):
    """The commands, each from its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the alphabet."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in _MODULES:
            return None
        # All that an import makes stays: looking for garbage meanwhile takes a third of a member's start.
        gc.disable()
        try:
            module = importlib.import_module(f"broker_stub.cli.{_MODULES[cmd_name]}")
        finally:
            gc.enable()
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's
    if wanted:
        click.echo(f"broker-stub {package_version()}")
        context.exit()


@click.group(cls=_Commands)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def main() -> None:
    """A reference AMQP 1.0 broker pair for trying out and testing failover."""
