"""``haclient move``: move messages from one node to another, perhaps in another cluster.

Rules
-----
* A message is accepted at the source only after the target has accepted it.  So if the command or a
  connection ends, the message is at the source, at the target, or at both.
* A message redelivered because its acceptance was lost is sent with the same duplicate-detection id; see
  ``forwarding``.
* A message that the target does not accept is released at the source only at the end, so that it is not
  redelivered at once.  After ``_MOST_REFUSED`` such messages the command ends.
* At most ``credit`` messages are in flight, and no more than the target's ``window``.
"""

from __future__ import annotations

import haclient.engine  # noqa: F401 - names what a broken proton lacks

# isort: split
import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import click
import proton

from haclient import aio
from haclient.api.deadlines import limit, wait_opened
from haclient.cli.capabilities import CAPABILITIES, advice_shown
from haclient.cli.exit_codes import LESS, client_errors, examples
from haclient.cli.forwarding import forwarded
from haclient.cli.patience import (
    COUNT,
    RATE,
    RECONNECT_TIMEOUT,
    TIMEOUT,
    Pace,
    Patience,
    has_end,
    watch_downtime,
    with_default_reconnect_timeout,
)
from haclient.cli.progress import QUIET, VERBOSE, MessageProgress
from haclient.cli.target import OVERRIDES, ROUTE_ARGUMENT, Target, divide_route, target_of
from haclient.cluster_url.options import Options
from haclient.command_line.interrupts import code_of
from haclient.command_line.signals import until_stopped
from haclient.core.sender import SenderCore
from haclient.errors import (
    DeliveryUnknown,
    HaclientError,
    MessageNotAccepted,
    MessageTooLarge,
    ReceiveTimeout,
    StaleDelivery,
)
from haclient.events.event_log import AsyncEvents
from haclient.factory.factory_core import FactoryCore
from haclient.outcome import Outcome

# Seconds that an interrupted move waits for messages that the target has not settled.
_LAST_WAIT = 5.0
# A target that refuses this many refuses the next one too: its queue is full, or may not be written to.
_MOST_REFUSED = 100
# Refused messages to print; all are counted.
_MOST_COMPLAINTS = 5

_EXAMPLES = examples(
    "haclient move amqp://broker-a,broker-b orders.dead orders --timeout 1",
    "haclient move old new --count 10                   # the URL is in HACLIENT_URL",
    "haclient move amqp://a,b orders amqp://c,d orders  # to another cluster, until Ctrl-C",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveArguments:
    """The arguments of ``move``."""

    source: str
    target: str
    count: int | None
    timeout: float | None
    reconnect_timeout: float | None
    rate: float | None
    capabilities: Sequence[str]
    as_json: bool


class _Moving:
    """Receives messages, sends them to the target, and accepts each after the target has accepted it.

    :ivar refused: messages that the target did not accept, to be released.
    :ivar again: messages that the target has, but the source redelivers, because its connection was lost.
    :ivar unsettled: messages that were given up without an outcome of the target.
    """

    def __init__(self, arguments: MoveArguments, progress: MessageProgress, source: Options) -> None:
        self.refused: list[aio.Delivery] = []
        self.again = self.unsettled = 0
        self.progress = progress
        self._arguments = arguments
        self._window = max(1, source.credit)
        self._duplicate_detection = True
        self._pace = Pace(arguments.rate)
        self._pending: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._main: asyncio.Task[Any] | None = None
        self._failure: BaseException | None = None
        # Kept for ``finish``: an unreferenced connection is closed.
        self._source: aio.Connection | None = None

    async def run(self, source: aio.ConnectionFactory, target: FactoryCore) -> None:
        """Move messages until the count is reached, or none arrives within the timeout."""
        self._main = asyncio.current_task()
        self._window = min(self._window, target.options.window)
        self._duplicate_detection = target.options.duplicate_detection
        connection, subscription = target.connection(), AsyncEvents()
        target.subscribe(subscription, connection.number)
        try:
            await connection.open()
            sender = connection.links.create_sender(
                self._arguments.target, capabilities=self._arguments.capabilities
            )
            await wait_opened(connection, sender, limit(None, target.options.call_timeout))
            async with self._watching(watch_downtime(subscription, self._arguments.reconnect_timeout)):
                self._source = await source.connect()
                await self._move(self._source, sender)
        except asyncio.CancelledError:
            if self._failure is None:
                raise
            raise self._failure from None

    async def finish(self) -> None:
        """Wait briefly for messages in flight, and release those refused by the target."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=_LAST_WAIT)
        self.unsettled += len(self._pending)
        for task in self._pending:
            task.cancel()
        for delivery in self.refused:
            with contextlib.suppress(StaleDelivery):
                await delivery.release()

    # -- internals ----------------------------------------------------------------------------

    async def _move(self, connection: aio.Connection, sender: SenderCore) -> None:
        arguments, subscription = self._arguments, connection.events()
        receiver = await connection.create_receiver(
            arguments.source,
            credit=self._most_pending,
            capabilities=arguments.capabilities,
            configure=_ask_for_unsettled,
        )
        patience = Patience(connection, arguments.timeout, arguments.reconnect_timeout)
        async with self._watching(patience.watch(subscription)):
            losses = -1
            while losses != patience.losses:
                with contextlib.suppress(ReceiveTimeout):
                    while await self._wait_window():
                        await self._pace.wait()
                        self._send(await patience.receive(receiver), sender)
                losses = patience.losses
                if self._pending:
                    self.progress.print_line(
                        f"{len(self._pending):,} messages wait for an outcome of the target"
                    )
                while self._pending:
                    await asyncio.wait(self._pending)

    @property
    def _most_pending(self) -> int:
        """Number of messages that may be in flight now."""
        if self._arguments.count is None:
            return self._window
        return min(self._window, self._arguments.count - self.progress.count)

    async def _wait_window(self) -> bool:
        """Wait until another message may be received; return ``False`` if there are enough."""
        while len(self._pending) >= self._most_pending > 0:
            self._changed.clear()
            await self._changed.wait()
        return self._most_pending > 0 and len(self.refused) < _MOST_REFUSED

    def _send(self, delivery: aio.Delivery, sender: SenderCore) -> None:
        try:
            data = forwarded(
                delivery.data,
                duplicate_detection=self._duplicate_detection,
                ids_live_with_messages=sender.ids_live_with_messages,
            )
        except ValueError as error:
            self._refuse(delivery, error)
            return
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        sender.submit(data, future)
        task = asyncio.create_task(self._settle(delivery, future), name="haclient move")
        self._pending.add(task)
        task.add_done_callback(self._on_settled)

    async def _settle(self, delivery: aio.Delivery, future: asyncio.Future[Outcome]) -> None:
        """Wait for the outcome at the target, and settle the delivery at the source accordingly."""
        try:
            await future
        except (MessageNotAccepted, MessageTooLarge, DeliveryUnknown) as error:
            self._refuse(delivery, error)
        except HaclientError as error:  # the sender has ended
            self.unsettled += 1
            self._fail(error)
        else:
            try:
                await delivery.accept()
            except StaleDelivery:
                self.again += 1
            else:
                self.progress.add(1)

    def _on_settled(self, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        self._changed.set()

    def _refuse(self, delivery: aio.Delivery, error: Exception) -> None:
        self.refused.append(delivery)
        if len(self.refused) <= _MOST_COMPLAINTS:
            self.progress.print_line(f"not moved: {error}")

    def _fail(self, error: BaseException) -> None:
        """End ``run`` with this error."""
        if self._failure is None and self._main is not None:
            self._failure = error
            self._main.cancel()

    @asynccontextmanager
    async def _watching(self, watch: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Watch a connection's events during this context; an error of the watch ends ``run``."""
        task = asyncio.create_task(watch, name="haclient move events")
        task.add_done_callback(self._on_watched)
        try:
            yield
        finally:
            task.cancel()

    def _on_watched(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


def _ask_for_unsettled(receiver: proton.Receiver) -> None:
    """Ask the source to keep each message until its outcome (AMQP 1.0 part 2, section 2.8.2)."""
    receiver.snd_settle_mode = proton.Link.SND_UNSETTLED


@click.command(epilog=_EXAMPLES)
@ROUTE_ARGUMENT
@OVERRIDES
@COUNT
@TIMEOUT
@RECONNECT_TIMEOUT
@RATE
@CAPABILITIES
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@QUIET
@VERBOSE
def move(
    route: Sequence[str],
    overrides: Sequence[tuple[str, str]],
    *,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Move the messages of FROM to TO, unchanged; accept each one after TO has accepted it.

    A second URL means that TO is in another cluster; --option and --capability apply to both.  The command
    continues after a failover of either cluster, and loses no message.  A durable message gets a
    duplicate-detection id, by which TO recognises it if it is moved again; other messages may arrive twice.

    Messages that TO does not accept stay at FROM, and the exit code is 1.
    Without --count or --timeout the command ends with Ctrl-C or SIGTERM, and waits a few seconds for messages
    that TO has not settled yet.
    """
    (url, address), (target_url, target_address) = divide_route(route)
    with_default_reconnect_timeout(given)
    arguments = MoveArguments(source=address, target=target_address, **given)
    source, target = target_of(url, overrides), target_of(target_url, overrides)
    if (source.url, address) == (target.url, target_address):
        raise click.UsageError(f"FROM and TO are the same: {address}")
    progress = MessageProgress("moved", total=arguments.count, quiet=quiet, verbose=verbose)
    work = _Moving(arguments, progress, source.options())
    try:
        with client_errors():
            stopped = asyncio.run(_run(source, target, work))
    finally:
        _conclude(arguments, work, quiet=quiet)
    if stopped is not None and has_end(progress.count, arguments.count, arguments.timeout):
        raise click.exceptions.Exit(code_of(stopped))
    if work.refused or work.unsettled or progress.count < (arguments.count or 0):
        raise click.exceptions.Exit(LESS)


async def _run(source: Target, target: Target, work: _Moving) -> signal.Signals | None:
    on_event = work.progress.on_event
    with work.progress, advice_shown(work.progress.print_line):
        target_factory = target.encoded_factory(on_event)
        try:
            async with source.factory(on_event) as factory:
                stopped = await until_stopped(work.run(factory, target_factory))
                await work.finish()
                return stopped
        finally:
            await target_factory.close()


def _conclude(arguments: MoveArguments, work: _Moving, *, quiet: bool) -> None:
    counts = {"not_accepted": len(work.refused), "unsettled": work.unsettled, "again": work.again}
    if arguments.as_json:
        click.echo(json.dumps(work.progress.summary(**counts)))
    elif not quiet:
        texts = {"not_accepted": "not accepted", "unsettled": "not settled", "again": "of them come again"}
        work.progress.conclude(*(f"{count:,} {texts[name]}" for name, count in counts.items() if count))
