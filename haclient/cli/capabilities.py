"""``--capability``: what a command asks of the node that it sends to, or receives from.

Brokers name kinds of nodes by it: Artemis makes a queue for ``queue`` and a topic for ``topic``.

Source: AMQP 1.0 part 3, sections 3.5.3 and 3.5.4 (``capabilities`` of a source and of a target).
"""

from __future__ import annotations

from collections.abc import Sequence

import click
import proton

CAPABILITIES = click.option(
    "--capability",
    "capabilities",
    metavar="NAME",
    multiple=True,
    help="A capability to ask of the node, such as queue or topic of Artemis.  Can be repeated.",
)


def ask_source(receiver: proton.Receiver, names: Sequence[str]) -> None:
    """Ask capabilities of the node that a receiver receives from."""
    _ask(receiver.source, names)


def ask_target(sender: proton.Sender, names: Sequence[str]) -> None:
    """Ask capabilities of the node that a sender sends to."""
    _ask(sender.target, names)


def _ask(terminus: proton.Terminus, names: Sequence[str]) -> None:
    if names:
        symbols = (proton.symbol(name) for name in names)
        array = proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, *symbols)  # type: ignore[arg-type]
        terminus.capabilities.put_object(array)
