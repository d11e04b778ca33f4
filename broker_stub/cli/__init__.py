"""The commands: ``serve`` one member, run a ``pair``, and manage members that run.

Exit codes, for scripts: 0 done, 1 refused (the reason is on standard error), 2 usage,
3 not reachable.

A command's module is imported when it is asked for: a member starts without what only people look at.
"""

from __future__ import annotations

import click

from haclient.command_line.groups import Program, version_option

_MODULES = {
    "binding": "declare",
    "demote": "manage",
    "exchange": "declare",
    "link": "link",
    "pair": "pair",
    "promote": "manage",
    "queue": "declare",
    "serve": "serve",
    "set-members": "manage",
    "site": "site",
    "status": "manage",
}


@click.group(cls=Program, modules={name: f"broker_stub.cli.{module}" for name, module in _MODULES.items()})
@version_option("broker-stub")
def main() -> None:
    """A reference AMQP 1.0 broker pair for trying out and testing failover."""
