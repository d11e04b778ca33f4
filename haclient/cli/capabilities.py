"""``--capability``: capabilities that a command requests from the node that it sends to or receives from.

Brokers identify kinds of nodes by them: Artemis makes a queue for ``queue`` and a topic for ``topic``.

Source: AMQP 1.0 part 3, sections 3.5.3 and 3.5.4 (``capabilities`` of a source and of a target).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from haclient.core.attach.target import target_capabilities
from haclient.core.quirks.workarounds import TOPIC_ADVICE_END, advice


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


class _Shown(logging.Handler):
    """Prints log records as notes."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._print_line = print_line

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        how = "; --capability says so" if text.endswith(TOPIC_ADVICE_END) else ""
        self._print_line(f"note: {text}{how}")


@contextmanager
def advice_shown(print_line: Callable[[str], None]) -> Iterator[None]:
    """Print advice of the client, such as about a missing capability, while this context lasts."""
    handler, level = _Shown(print_line), advice.level
    advice.addHandler(handler)
    advice.setLevel(logging.INFO)
    try:
        yield
    finally:
        advice.setLevel(level)
        advice.removeHandler(handler)
