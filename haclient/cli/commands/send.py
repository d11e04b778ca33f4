"""``haclient send``: send lines of standard input as messages."""

from __future__ import annotations

import haclient.engine  # noqa: F401 - names what a broken proton lacks

# isort: split
import asyncio
import contextlib
import json
import math
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import proton

from haclient import aio
from haclient.cli.capabilities import CAPABILITIES, advice_shown
from haclient.cli.exit_codes import LESS, client_errors, examples
from haclient.cli.options import UnusableError
from haclient.cli.patience import RATE, Pace
from haclient.cli.progress import QUIET, VERBOSE, MessageProgress
from haclient.cli.streams import LineInput, descriptor_of
from haclient.cli.target import ADDRESS_ARGUMENT, OVERRIDES, Target, divide, target_of
from haclient.command_line.interrupts import code_of
from haclient.command_line.signals import until_stopped
from haclient.errors import (
    DeliveryUnknown,
    MessageNotAccepted,
    MessageTooLarge,
    SendTimeout,
    UnencodableValue,
)
from haclient.outcome import Outcome
from haclient.printable.text import printable

# Seconds that an interrupted send waits for messages that are not settled.
_LAST_WAIT = 5.0
# Failed messages to print; all are counted.
_MOST_COMPLAINTS = 5

_EXAMPLES = examples(
    "haclient send amqp://broker-a,broker-b orders < orders.txt",
    "echo hello | haclient send orders                 # the URL is in HACLIENT_URL",
    "haclient send amqp://a,b orders -m hello --count 1000 --rate 50",
    """haclient send amqp://a,b orders --json <<< '{"subject": "new", "body": {"n": 1}}'""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendArguments:
    """The arguments of ``send``."""

    address: str
    message: str | None
    count: int | None
    rate: float | None
    durable: bool
    capabilities: Sequence[str]
    properties: Sequence[tuple[str, str]]
    as_json: bool


class _SendResults:
    """Counts the outcomes of messages; the progress counts accepted ones.

    :ivar sent: messages given to the sender.
    :ivar failure: error that ended the sender, if any.
    :ivar closing: whether remaining messages are abandoned on purpose, so that their errors do not count.
    """

    def __init__(self, progress: MessageProgress) -> None:
        self.progress = progress
        self.sent = self.not_accepted = self.unsettled = 0
        self.failure: BaseException | None = None
        self.closing = False

    def watch(self, future: asyncio.Future[Outcome]) -> None:
        """Count one more message, and later its outcome."""
        self.sent += 1
        future.add_done_callback(partial(self._on_settled, self.sent))

    def _on_settled(self, number: int, future: asyncio.Future[Outcome]) -> None:
        match future.exception():
            case None:
                self.progress.add(1)
            case MessageNotAccepted() | MessageTooLarge() as error:
                self.not_accepted += 1
                self._complain(self.not_accepted, f"message {number}: {error}")
            case SendTimeout() | DeliveryUnknown() as error:
                self.unsettled += 1
                self._complain(self.unsettled, f"message {number}: {error}")
            case error:
                self.unsettled += 1
                if not self.closing:
                    self.failure = self.failure or error

    def _complain(self, count: int, text: str) -> None:
        if count <= _MOST_COMPLAINTS:
            self.progress.print_line(text)

    @property
    def remarks(self) -> list[str]:
        """Counts for the final sentence, without zeros."""
        counts = {"not accepted": self.not_accepted, "not settled": self.unsettled}
        return [f"{count:,} {what}" for what, count in counts.items() if count]


@click.command(epilog=_EXAMPLES)
@ADDRESS_ARGUMENT
@OVERRIDES
@click.option("-m", "--message", metavar="TEXT", help="The message, instead of standard input.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    help="So many messages: lines of the input, or times --message.  [default: all lines, once]",
)
@RATE
@click.option(
    "--durable/--non-durable",
    default=True,
    show_default=True,
    help="Whether the messages survive a failover.  A JSON message that says so itself wins.",
)
@CAPABILITIES
@click.option(
    "-p", "--property", "properties", multiple=True, metavar="NAME=TEXT", help="An application property."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each line is a message as JSON, as `receive --json` writes them; print the figures as JSON.",
)
@QUIET
@VERBOSE
def send(
    url_and_address: Sequence[str],
    overrides: Sequence[tuple[str, str]],
    *,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Send each line of standard input as a message to ADDRESS.

    Continues after a failover: messages that the lost primary had not settled are sent again.  Messages are
    durable: they survive a failover.  Ends when every message is settled, and counts the messages
    that the primary accepted.  On Ctrl-C or SIGTERM it stops reading, and waits a few seconds for messages
    that are not settled yet.

    The options `startup_deadline` and `deadline` limit the search for a primary.
    """
    url, address = divide(url_and_address)
    given["properties"] = [_property(text) for text in given["properties"]]
    arguments = SendArguments(address=address, **given)
    target = target_of(url, overrides)
    progress = MessageProgress("accepted", total=arguments.count, quiet=quiet, verbose=verbose)
    results = _SendResults(progress)
    try:
        with client_errors():
            stopped = asyncio.run(_run(target, arguments, results))
    finally:
        _conclude(arguments, results, quiet=quiet)
    if stopped is not None and (arguments.count is None or progress.count < arguments.count):
        raise click.exceptions.Exit(code_of(stopped))
    if results.not_accepted or results.unsettled or progress.count < (arguments.count or 0):
        raise click.exceptions.Exit(LESS)


def _conclude(arguments: SendArguments, results: _SendResults, *, quiet: bool) -> None:
    if arguments.as_json:
        figures = {
            "not_accepted": results.not_accepted,
            "unsettled": results.unsettled,
        }
        click.echo(json.dumps({"sent": results.sent, **results.progress.summary(**figures)}))
    elif not quiet:
        results.progress.conclude(*results.remarks)


def _property(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"--property: {text!r} is not like NAME=TEXT")
    return name, value


async def _run(target: Target, arguments: SendArguments, results: _SendResults) -> signal.Signals | None:
    """Send all messages and wait for their outcomes; return the signal that ended this, if any."""
    sender: aio.Sender | None = None

    async def work() -> None:
        nonlocal sender
        connection = await factory.connect()
        sender = await connection.create_sender(arguments.address, capabilities=arguments.capabilities)
        try:
            await _send(sender, arguments, results)
        except UnusableError:  # bad input: settle the messages before it first
            await sender.flush(timeout=math.inf)
            raise
        await sender.flush(timeout=math.inf)

    with results.progress, advice_shown(results.progress.print_line):
        async with target.factory(results.progress.on_event) as factory:
            stopped = await until_stopped(work())
            if stopped is not None and sender is not None:
                with contextlib.suppress(SendTimeout):
                    await sender.flush(timeout=_LAST_WAIT)
            results.closing = results.failure is None
            await factory.close()  # leaving the block would wait again
    if results.failure is not None:
        raise results.failure
    return stopped


async def _send(sender: aio.Sender, arguments: SendArguments, results: _SendResults) -> None:
    pace = Pace(arguments.rate)
    async for where, message in _messages(arguments):
        await pace.wait()
        with _input_errors(where):
            future = await sender.submit(message, durable=message.durable)
        results.watch(future)
        if results.sent == arguments.count:
            return


async def _messages(arguments: SendArguments) -> AsyncIterator[tuple[str, proton.Message]]:
    """Yield the messages, each with its place in the input."""
    if arguments.message is not None:
        for _ in range(arguments.count or 1):
            yield "--message", _made(arguments, arguments.message.encode(), "--message")
        return
    number = 0
    async for lines in LineInput(descriptor_of(sys.stdin, "input")):
        for line in lines:
            number += 1
            if line.strip() or not arguments.as_json:
                yield f"line {number}", _made(arguments, line, f"line {number}")


def _made(arguments: SendArguments, line: bytes, where: str) -> proton.Message:
    with _input_errors(where):
        message = _parsed(arguments, line.decode())
    if arguments.properties:
        properties: dict[Any, Any] = message.properties or {}
        message.properties = {**properties, **dict(arguments.properties)}  # type: ignore[assignment]
    return message


@contextlib.contextmanager
def _input_errors(where: str) -> Iterator[None]:
    """Convert an error of the input, or of its encoding as AMQP, to an error message."""
    try:
        yield
    except (ValueError, RecursionError, UnencodableValue) as error:
        raise UnusableError(f"{where}: {printable(_reason(error))}") from error


def _parsed(arguments: SendArguments, text: str) -> proton.Message:
    if not arguments.as_json:
        return proton.Message(body=text, durable=arguments.durable)
    from haclient.cli.message_json import from_json  # noqa: PLC0415 - only needed here

    return from_json(json.loads(text), durable=arguments.durable)


def _reason(error: Exception) -> str:
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return "it is not UTF-8 text"
        case json.JSONDecodeError():
            return f"it is not JSON: {error.msg} at character {error.pos + 1}"
        case _:
            return str(error)
