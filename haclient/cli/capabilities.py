"""``--capability``: what a command asks of the node that it sends to, or receives from.

Brokers name kinds of nodes by it: Artemis makes a queue for ``queue`` and a topic for ``topic``.

Source: AMQP 1.0 part 3, sections 3.5.3 and 3.5.4 (``capabilities`` of a source and of a target).
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from haclient.core.attach.target import target_capabilities


def _checked(_: click.Context, __: click.Parameter, names: Sequence[str]) -> Sequence[str]:
    try:
        return target_capabilities(names)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


CAPABILITIES = click.option(
    "--capability",
    "capabilities",
    metavar="NAME",
    multiple=True,
    callback=_checked,
    help="A capability to ask of the node, such as queue or topic of Artemis.  Can be repeated.",
)
