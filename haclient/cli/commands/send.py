"""``haclient send``: lines of standard input as messages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import proton

from haclient import aio
from haclient.cli.exit_codes import LESS, client_errors, examples
from haclient.cli.options import UnusableError
from haclient.cli.progress import QUIET, VERBOSE, Meter
from haclient.cli.signals import RATE, Pace, until_stopped
from haclient.cli.streams import LineInput, descriptor_of
from haclient.cli.target import OVERRIDES, PLACE_ARGUMENT, Target, divide, target_of
from haclient.errors import DeliveryUnknown, MessageNotAccepted, SendTimeout
from haclient.outcome import Outcome

# How long an interrupted send waits for what is under way.
_LAST_WAIT = 5.0
# Of messages that were not accepted, so many are shown, and all are counted.
_MOST_COMPLAINTS = 5

_EXAMPLES = examples(
    "haclient send amqp://broker-a,broker-b orders < orders.txt",
    "echo hello | haclient send orders                 # the URL is in HACLIENT_URL",
    "haclient send amqp://a,b orders -m hello --count 1000 --rate 50 --durable",
    """haclient send amqp://a,b orders --json <<< '{"subject": "new", "body": {"n": 1}}'""",
    "haclient receive amqp://a,b old --json --timeout 1 | haclient send amqp://c,d new --json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to send."""

    address: str
    message: str | None
    count: int | None
    rate: float | None
    durable: bool
    properties: Sequence[tuple[str, str]]
    as_json: bool


class _Tally:
    """What becomes of the messages.

    :ivar failure: what ended the sender, if something did.
    :ivar closing: whether what ends now was left behind on purpose.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.accepted = self.refused = self.unsettled = 0
        self.failure: BaseException | None = None
        self.closing = False

    def watch(self, future: asyncio.Future[Outcome]) -> None:
        """One more message is under way."""
        self.meter.add(1)
        future.add_done_callback(partial(self._settled, self.meter.count))

    def _settled(self, number: int, future: asyncio.Future[Outcome]) -> None:
        match future.exception():
            case None:
                self.accepted += 1
            case MessageNotAccepted() as error:
                self.refused += 1
                self._complain(self.refused, f"message {number}: {error}")
            case SendTimeout() | DeliveryUnknown() as error:
                self.unsettled += 1
                self._complain(self.unsettled, f"message {number}: {error}")
            case error:
                self.unsettled += 1
                if not self.closing:
                    self.failure = self.failure or error

    def _complain(self, count: int, text: str) -> None:
        if count <= _MOST_COMPLAINTS:
            self.meter.say(text)

    @property
    def remarks(self) -> list[str]:
        """What a person should know."""
        counts = {"not accepted": self.refused, "not settled": self.unsettled}
        return [f"{count:,} {what}" for what, count in counts.items() if count]


@click.command(epilog=_EXAMPLES)
@PLACE_ARGUMENT
@OVERRIDES
@click.option("-m", "--message", metavar="TEXT", help="The message, instead of standard input.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    help="So many messages: lines of the input, or times --message.  [default: all lines, once]",
)
@RATE
@click.option("--durable", is_flag=True, help="Ask the broker to keep the messages over a restart.")
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
    place: Sequence[str], overrides: Sequence[tuple[str, str]], *, quiet: bool, verbose: bool, **given: Any
) -> None:
    """Send each line of standard input as a message to ADDRESS.

    Goes on over a failover: what the lost primary had not settled is sent again.  The command ends when
    every message is settled.  Ctrl-C or SIGTERM ends the reading, and waits a few seconds for what is
    under way.

    The search for a primary lasts as long as the options `startup_deadline` and `deadline` say.
    """
    url, address = divide(place)
    given["properties"] = [_property(text) for text in given["properties"]]
    plan = Plan(address=address, **given)
    target = target_of(url, overrides)
    meter = Meter("sent", total=plan.count, quiet=quiet, verbose=verbose)
    tally = _Tally(meter)
    try:
        with client_errors():
            stopped = asyncio.run(_run(target, plan, tally))
    finally:
        _conclude(plan, tally, quiet=quiet)
    if stopped or tally.refused or tally.unsettled or meter.count < (plan.count or 0):
        raise click.exceptions.Exit(LESS)


def _conclude(plan: Plan, tally: _Tally, *, quiet: bool) -> None:
    if plan.as_json:
        figures = {"accepted": tally.accepted, "not_accepted": tally.refused, "unsettled": tally.unsettled}
        click.echo(json.dumps(tally.meter.summary(**figures)))
    elif not quiet:
        tally.meter.conclude(*tally.remarks)


def _property(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"--property: {text!r} is not like NAME=TEXT")
    return name, value


async def _run(target: Target, plan: Plan, tally: _Tally) -> bool:
    """Send, and see what becomes of it; whether a signal ended it."""
    sender: aio.Sender | None = None

    async def work() -> None:
        nonlocal sender
        connection = await factory.connect()
        sender = await connection.create_sender(plan.address)
        try:
            await _send(sender, plan, tally)
        except UnusableError:  # of the input: what was sent before is settled first
            await sender.flush()
            raise
        await sender.flush()

    with tally.meter:
        async with target.factory(tally.meter.take) as factory:
            stopped = await until_stopped(work())
            if stopped and sender is not None:
                with contextlib.suppress(SendTimeout):
                    await sender.flush(timeout=_LAST_WAIT)
            tally.closing = tally.failure is None
    if tally.failure is not None:
        raise tally.failure
    return stopped


async def _send(sender: aio.Sender, plan: Plan, tally: _Tally) -> None:
    pace = Pace(plan.rate)
    async for message in _messages(plan):
        await pace.turn()
        tally.watch(await sender.send_nowait(message))
        if tally.meter.count == plan.count:
            return


async def _messages(plan: Plan) -> AsyncIterator[proton.Message]:
    if plan.message is not None:
        for _ in range(plan.count or 1):
            yield _made(plan, plan.message.encode(), "--message")
        return
    number = 0
    async for lines in LineInput(descriptor_of(sys.stdin, "input")):
        for line in lines:
            number += 1
            if line.strip() or not plan.as_json:
                yield _made(plan, line, f"line {number}")


def _made(plan: Plan, line: bytes, where: str) -> proton.Message:
    try:
        message = _parsed(plan, line.decode())
    except ValueError as error:
        raise UnusableError(f"{where}: {_reason(error)}") from error
    if plan.durable:
        message.durable = True
    if plan.properties:
        properties: dict[Any, Any] = message.properties or {}
        message.properties = {**properties, **dict(plan.properties)}  # type: ignore[assignment]
    return message


def _parsed(plan: Plan, text: str) -> proton.Message:
    if not plan.as_json:
        return proton.Message(body=text)
    from haclient.cli.message_json import from_json  # noqa: PLC0415 - only needed here

    return from_json(json.loads(text))


def _reason(error: ValueError) -> str:
    match error:
        case UnicodeDecodeError():
            return "it is not UTF-8 text"
        case json.JSONDecodeError():
            return f"it is not JSON: {error.msg} at character {error.pos + 1}"
        case _:
            return str(error)
