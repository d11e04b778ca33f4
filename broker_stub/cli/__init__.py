"""The commands: ``serve`` one member, run a ``pair``, and manage members that run.

Exit codes, for scripts: 0 done, 1 refused (the reason is on standard error), 2 usage,
3 not reachable.
"""

from __future__ import annotations

import click

from broker_stub.cli.declare import binding, exchange, queue
from broker_stub.cli.link import link
from broker_stub.cli.manage import demote, promote, set_members, status
from broker_stub.cli.pair import pair
from broker_stub.cli.serve import serve
from broker_stub.cli.site import site


@click.group()
def main() -> None:
    """A reference AMQP 1.0 broker pair for trying out and testing failover."""


for command in (serve, pair, status, promote, demote, set_members, queue, exchange, binding, link, site):
    main.add_command(command)
