"""``haclient receive``: messages as lines of standard output.

A message is accepted when its line is written: what was not written is delivered again, to whoever asks.
What was written, and not accepted before its connection was lost, comes again, and is written again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from haclient import aio
from haclient.cli.exit_codes import LESS, client_errors, examples
from haclient.cli.message_json import encoded, to_json
from haclient.cli.progress import QUIET, VERBOSE, Meter
from haclient.cli.signals import RATE, Pace, until_stopped
from haclient.cli.streams import Output, descriptor_of
from haclient.cli.target import OVERRIDES, PLACE_ARGUMENT, Target, divide, target_of
from haclient.errors import ReceiveTimeout, StaleDelivery

# Messages that are written together, and then accepted.
_BATCH = 64
# How long an interrupted receive waits for what is being written.
_LAST_WAIT = 1.0

_EXAMPLES = examples(
    "haclient receive amqp://broker-a,broker-b orders",
    "haclient receive orders --count 10 --timeout 5     # the URL is in HACLIENT_URL",
    "haclient receive amqp://a,b orders --json | jq .body",
    "haclient receive amqp://a,b orders --browse --timeout 1    # look, and leave them there",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to receive."""

    address: str
    count: int | None
    timeout: float | None
    rate: float | None
    browse: bool
    as_json: bool


class _Work:
    """Takes messages, writes them and accepts them.

    :ivar again: messages that were written, and come again.
    """

    def __init__(self, plan: Plan, meter: Meter) -> None:
        self.again = 0
        self._plan = plan
        self._meter = meter
        self._pace = Pace(plan.rate)

    async def run(self, factory: aio.ConnectionFactory, credit: int) -> None:
        """Until there are enough, or none comes any more, or nobody reads."""
        plan, output = self._plan, Output(descriptor_of(sys.stdout, "output"))
        connection = await factory.connect()
        credit = credit if plan.count is None else min(credit, plan.count)
        receiver = await connection.create_receiver(plan.address, credit=credit, browse=plan.browse)
        with contextlib.suppress(ReceiveTimeout, BrokenPipeError):
            while plan.count is None or self._meter.count < plan.count:
                await self._settle(output, await self._batch(receiver))

    async def _batch(self, receiver: aio.Receiver) -> list[aio.Delivery]:
        """The next message, and those that have come with it."""
        await self._pace.turn()
        batch = [await receiver.receive(timeout=self._plan.timeout)]
        most = _BATCH if self._plan.count is None else min(_BATCH, self._plan.count - self._meter.count)
        with contextlib.suppress(ReceiveTimeout):
            while len(batch) < most and self._plan.rate is None:
                batch.append(await receiver.receive(timeout=0))
        return batch

    async def _settle(self, output: Output, batch: list[aio.Delivery]) -> None:
        written = output.write(b"".join(self._line(delivery) for delivery in batch))
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            await asyncio.wait([written], timeout=_LAST_WAIT)
            if written.done() and written.exception() is None:
                await self._accept(batch)
            raise
        await self._accept(batch)

    async def _accept(self, batch: list[aio.Delivery]) -> None:
        self._meter.add(len(batch))
        for delivery in batch:
            try:
                await (delivery.release() if self._plan.browse else delivery.accept())
            except StaleDelivery:
                self.again += 1

    def _line(self, delivery: aio.Delivery) -> bytes:
        message = delivery.message
        if self._plan.as_json:
            text = json.dumps(to_json(message), ensure_ascii=False)
        elif isinstance(message.body, bytes):
            return message.body + b"\n"
        elif isinstance(message.body, str):
            text = message.body
        else:
            text = json.dumps(encoded(message.body), ensure_ascii=False)
        return f"{text}\n".encode()


@click.command(epilog=_EXAMPLES)
@PLACE_ARGUMENT
@OVERRIDES
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="End when no message has come for so many seconds.",
)
@RATE
@click.option("--browse", is_flag=True, help="Look at the messages, and leave them where they are.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each message is JSON on a line, with all its fields; so are the figures, on standard error.",
)
@QUIET
@VERBOSE
def receive(
    place: Sequence[str], overrides: Sequence[tuple[str, str]], *, quiet: bool, verbose: bool, **given: Any
) -> None:
    """Write each message of ADDRESS as a line to standard output, and then accept it.

    Goes on over a failover.  What was written, and not yet accepted when the primary died, comes again.
    Without --count or --timeout it ends with Ctrl-C or SIGTERM; messages that were not written stay in
    the queue.

    A body of text is written as it is; use --json when it may hold newlines.
    """
    url, address = divide(place)
    plan = Plan(address=address, **given)
    target = target_of(url, overrides)
    bar = sys.stdout is not None and not sys.stdout.isatty()
    meter = Meter("received", total=plan.count, quiet=quiet, verbose=verbose, bar=bar)
    work = _Work(plan, meter)
    try:
        with client_errors():
            asyncio.run(_run(target, work, meter))
    finally:
        _conclude(plan, work, meter, quiet=quiet)
    if meter.count < (plan.count or 0):
        raise click.exceptions.Exit(LESS)


async def _run(target: Target, work: _Work, meter: Meter) -> None:
    with meter:
        async with target.factory(meter.take) as factory:
            await until_stopped(work.run(factory, target.options().credit))


def _conclude(plan: Plan, work: _Work, meter: Meter, *, quiet: bool) -> None:
    if quiet:
        return
    if plan.as_json:
        click.echo(json.dumps(meter.summary(again=work.again)), err=True)
    else:
        meter.conclude(*([f"{work.again:,} of them come again"] if work.again else []))
