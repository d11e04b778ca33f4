"""The commands: ``serve`` one member, run a ``pair``, and manage running members.

Exit codes, for scripts: 0 done, 1 refused (the reason is on standard error), 2 usage, 3 not reachable, 130
and 143 interrupted by SIGINT and SIGTERM.

A command's module is imported on use, so that a member starts without the libraries of interactive commands.
"""

from __future__ import annotations

import click

from haclient.command_line.groups import AS_WRITTEN, Program, version_option

_MODULES = {
    "binding": "declare",
    "demote": "manage",
    "exchange": "declare",
    "link": "link",
    "pair": "pair",
    "passwd": "passwd",
    "promote": "manage",
    "queue": "declare",
    "serve": "serve",
    "set-members": "manage",
    "site": "site",
    "status": "manage",
}


_EPILOG = f"""{AS_WRITTEN}Exit codes:
  0    done; also pair and serve that a signal ended
  1    refused: the reason is on standard error
  2    wrong usage
  3    a member cannot be reached
  130  ended by Ctrl-C before its own end
  143  the same by SIGTERM"""


@click.group(
    cls=Program,
    modules={name: f"broker_stub.cli.{module}" for name, module in _MODULES.items()},
    epilog=_EPILOG,
)
@version_option("broker-stub")
def main() -> None:
    """A reference AMQP 1.0 broker pair for trying out and testing failover."""
