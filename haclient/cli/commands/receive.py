"""``haclient receive``: write messages as lines to standard output.

A message is accepted after its line is written; the broker delivers messages that were not written to
the next receiver.  If the connection is lost before a written message is accepted, the message is
delivered and written again.

A lost connection is not silence.  ``--timeout`` counts from the last message, or from the return of the
connection.  If a connection does not return, the command ends with the exit code for no primary.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from haclient import aio
from haclient.cli.capabilities import CAPABILITIES, advice_shown
from haclient.cli.exit_codes import LESS, client_errors, examples
from haclient.cli.message_json import UNREADABLE, encoded, to_json
from haclient.cli.patience import (
    COUNT,
    RATE,
    RECONNECT_TIMEOUT,
    TIMEOUT,
    Pace,
    Patience,
    has_end,
    with_default_reconnect_timeout,
)
from haclient.cli.progress import QUIET, VERBOSE, MessageProgress
from haclient.cli.streams import Output, descriptor_of
from haclient.cli.target import ADDRESS_ARGUMENT, OVERRIDES, Target, divide, target_of
from haclient.command_line.interrupts import code_of
from haclient.command_line.signals import until_stopped
from haclient.errors import ReceiveTimeout, StaleDelivery
from haclient.printable.text import printable, printable_json

# Most messages that are written, and then accepted, together.
_BATCH = 64
_DECODE_ERROR = "amqp:decode-error"
# Most characters of the reason sent to the broker.
_LONGEST_REASON = 200
# Seconds that an interrupted receive waits for pending output.
_LAST_WAIT = 1.0

_EXAMPLES = examples(
    "haclient receive amqp://broker-a,broker-b orders",
    "haclient receive orders --count 10 --timeout 5     # the URL is in HACLIENT_URL",
    "haclient receive amqp://a,b orders --json | jq .body",
    "haclient receive amqp://a,b orders --browse --timeout 1    # look, and leave them there",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveArguments:
    """The arguments of ``receive``."""

    address: str
    count: int | None
    timeout: float | None
    reconnect_timeout: float | None
    rate: float | None
    browse: bool
    capabilities: Sequence[str]
    as_json: bool


class _Receiving:
    """Receives messages, writes them and accepts them.

    :ivar again: messages that were written, but will be redelivered.
    :ivar unreadable: messages that could not be written, and were rejected.
    """

    def __init__(self, arguments: ReceiveArguments, progress: MessageProgress) -> None:
        self.again = self.unreadable = 0
        self._arguments = arguments
        self._progress = progress
        self._pace = Pace(arguments.rate)

    async def run(self, factory: aio.ConnectionFactory, credit: int) -> None:
        """Receive until the count is reached, none arrives within the timeout, or the output is closed."""
        arguments, output = self._arguments, Output(descriptor_of(sys.stdout, "output"))
        # Kept until the factory closes the connection, which sends the outcomes first.
        self._connection = connection = await factory.connect()
        subscription = connection.events()
        credit = credit if arguments.count is None else min(credit, arguments.count)
        receiver = await connection.create_receiver(
            arguments.address,
            credit=credit,
            browse=arguments.browse,
            capabilities=arguments.capabilities,
        )
        patience = Patience(connection, arguments.timeout, arguments.reconnect_timeout)
        watching = asyncio.create_task(patience.watch(subscription), name="haclient receive events")
        try:
            with contextlib.suppress(ReceiveTimeout, BrokenPipeError):
                while arguments.count is None or self._progress.count < arguments.count:
                    await self._settle(output, await self._batch(receiver, patience))
        finally:
            watching.cancel()

    async def _batch(self, receiver: aio.Receiver, patience: Patience) -> list[aio.Delivery]:
        """Return the next message, and others that have already arrived."""
        await self._pace.wait()
        batch = [await patience.receive(receiver)]
        most = (
            _BATCH
            if self._arguments.count is None
            else min(_BATCH, self._arguments.count - self._progress.count)
        )
        with contextlib.suppress(ReceiveTimeout):
            while len(batch) < most and self._arguments.rate is None:
                batch.append(await receiver.receive(timeout=0))
        return batch

    async def _settle(self, output: Output, received: list[aio.Delivery]) -> None:
        batch, lines = [], []
        for delivery in received:
            try:
                lines.append(self._line(delivery))
            except UNREADABLE as error:
                await self._reject(delivery, error)
            else:
                batch.append(delivery)
        written = output.write(b"".join(lines))
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            await asyncio.wait([written], timeout=_LAST_WAIT)
            if written.done() and written.exception() is None:
                await self._accept(batch)
            raise
        await self._accept(batch)

    async def _accept(self, batch: list[aio.Delivery]) -> None:
        self._progress.add(len(batch))
        for delivery in batch:
            try:
                await (delivery.release() if self._arguments.browse else delivery.accept())
            except StaleDelivery:
                self.again += 1

    async def _reject(self, delivery: aio.Delivery, error: Exception) -> None:
        """Skip a message that cannot be written; left alone, it would end every later command too."""
        self.unreadable += 1
        browse, why = self._arguments.browse, f"it cannot be read: {str(error) or type(error).__name__}"
        self._progress.print_line(f"a message {'is left out' if browse else 'was rejected'}, for {why}")
        with contextlib.suppress(StaleDelivery):
            await (delivery.release() if browse else delivery.reject(_DECODE_ERROR, why[:_LONGEST_REASON]))

    def _line(self, delivery: aio.Delivery) -> bytes:
        if sys.stdout.isatty():  # escapes protect the terminal from control characters in a body
            text = self._body(delivery).decode(errors="backslashreplace")
            return f"{printable(text)}\n".encode()
        return self._body(delivery) + b"\n"

    def _body(self, delivery: aio.Delivery) -> bytes:
        message = delivery.message
        if self._arguments.as_json:
            text = printable_json(to_json(message))
        elif isinstance(message.body, bytes):
            return message.body
        elif isinstance(message.body, str):
            text = message.body
        else:
            text = printable_json(encoded(message.body))
        return text.encode()


@click.command(epilog=_EXAMPLES)
@ADDRESS_ARGUMENT
@OVERRIDES
@COUNT
@TIMEOUT
@RECONNECT_TIMEOUT
@RATE
@CAPABILITIES
@click.option("--browse", is_flag=True, help="Show the messages, and leave them where they are.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each message is JSON on a line, with all its fields; so are the figures, on standard error.",
)
@QUIET
@VERBOSE
def receive(
    url_and_address: Sequence[str],
    overrides: Sequence[tuple[str, str]],
    *,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Write each message of ADDRESS as a line to standard output, and then accept it.

    Continues after a failover.  If the primary dies before a written message is accepted, the message is
    delivered and written again.
    Without --count or --timeout the command ends with Ctrl-C or SIGTERM; messages that were not written stay
    in the queue.

    A text body is written unchanged; use --json if it may hold newlines.  On a terminal, unprintable
    characters are written as escapes.
    A message that cannot be read is rejected with amqp:decode-error: brokers move it to their dead-letter
    address, or drop it.  With --browse it stays, and haclient move moves it unchanged.
    """
    url, address = divide(url_and_address)
    with_default_reconnect_timeout(given)
    arguments = ReceiveArguments(address=address, **given)
    target = target_of(url, overrides)
    bar = sys.stdout is not None and not sys.stdout.isatty()
    progress = MessageProgress("received", total=arguments.count, quiet=quiet, verbose=verbose, bar=bar)
    work = _Receiving(arguments, progress)
    try:
        with client_errors():
            stopped = asyncio.run(_run(target, work, progress))
    finally:
        _conclude(arguments, work, progress, quiet=quiet)
    if stopped is not None and has_end(progress.count, arguments.count, arguments.timeout):
        raise click.exceptions.Exit(code_of(stopped))
    if progress.count < (arguments.count or 0):
        raise click.exceptions.Exit(LESS)


async def _run(target: Target, work: _Receiving, progress: MessageProgress) -> signal.Signals | None:
    with progress, advice_shown(progress.print_line):
        async with target.factory(progress.on_event) as factory:
            return await until_stopped(work.run(factory, target.options().credit))


def _conclude(
    arguments: ReceiveArguments, work: _Receiving, progress: MessageProgress, *, quiet: bool
) -> None:
    if quiet:
        return
    if arguments.as_json:
        more = {"unreadable": work.unreadable} if work.unreadable else {}
        click.echo(json.dumps(progress.summary(again=work.again, **more)), err=True)
    else:
        progress.conclude(
            *([f"{work.again:,} of them come again"] if work.again else []),
            *([f"{work.unreadable:,} could not be read"] if work.unreadable else []),
        )
