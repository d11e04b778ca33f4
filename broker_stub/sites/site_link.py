"""A link: receives the events of another site, and has its exchange apply them.

Theory of operation
-------------------
``run`` repeats for ever: find the primary of the source (``haclient`` does), receive from its
replication queue, hand each event to the exchange in the iteration of the event loop in which it arrives,
and accept it when it is safe here.  What is not accepted when the connection is lost is sent again.

Rules
-----
* Events are accepted in the order in which they became safe.
* An event of a connection that is lost is not accepted any more: its second copy is recognised.
* When the source refuses (there is no such queue, another link took over) the link retries later.
* Only a source that has SCRAM, or TLS that ``tls_ca`` verifies, can be sent a password.
* While this site has no room for events (``queue_limits``), the link waits, or it ends if the member is
  configured so; either is an anomaly.
* The password is read before every attempt; while its file cannot be used, that is the link's error.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from broker_stub.amqp.conditions import DECODE_ERROR
from broker_stub.amqp.message_format import MalformedMessageError
from broker_stub.amqp.password_mechanisms import password_options
from broker_stub.queueing.exchanges import Exchange, Route, UnroutableError
from broker_stub.queueing.intake import Intake
from broker_stub.queueing.nodes import AddressRefusedError
from broker_stub.queueing.site_state import REPLICATION_QUEUE
from broker_stub.sites.at_limit import AtLimit
from broker_stub.sites.inbound import OwnEventError
from broker_stub.sites.password_file import PasswordFileError, PasswordFiles
from broker_stub.sites.source_config import SourceConfig
from haclient import Credentials, State, aio
from haclient.errors import AlreadySettled, HaclientError, StaleDelivery
from haclient.events import AttemptFailed, Connected, Disconnected, Event, Reconnected
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.sites")

FOLLOW = "haclient:follow"
"""What a link asks for in its Open: to be served by the primary only, as any client is."""

# Events on their way, and as many not safe yet: half a second of round trip and settling at 10,000 a second.
_CREDIT = 5000
# Seconds until the source is asked again.  Longer than a member that woke up too late needs to step down.
_PAUSE = 2.0


STOPPED = "stopped"


class LimitReachedError(Exception):
    """This site takes no further event, and the link is to end."""


class SiteLink:
    """The link of one exchange.

    :param source: the cluster of the source.
    :param password_files: where its password may be.
    :param intake: applies nothing while there is no room to store it.
    :param at_limit: what it does while this site has no room.
    :param report: gets the anomaly then: its case and a text.
    """

    def __init__(
        self,
        exchange: Exchange,
        source: SourceConfig,
        password_files: PasswordFiles,
        *,
        intake: Intake,
        at_limit: AtLimit,
        report: Callable[[str, str], None],
    ) -> None:
        self._intake = intake
        self._source = source
        self._password_files = password_files
        self._at_limit = at_limit
        self._report = report
        self._stopping = False
        self._route = Route(exchange)
        self._connection: aio.Connection | None = None
        self._ended = self._attempt_error = self._password_error = ""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link {exchange.name}")

    @property
    def state(self) -> str:
        """That of its connection, or stopped."""
        if self._stopping:
            return STOPPED
        state = State.CONNECTING if self._connection is None else self._connection.state
        return state.value

    @property
    def error(self) -> str:
        """Why it is not connected; when it is, why it last had to begin anew."""
        return self._password_error or self._attempt_error or self._ended

    def stop(self) -> asyncio.Task[None]:
        """Apply nothing more from now on; the task ends soon.

        The flag is for a cancellation that a task group swallows, as one does that ends with an error
        in the same iteration of the loop.
        """
        self._stopping = True
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while not self._stopping:
            try:
                async with self._connect() as connection:
                    self._connection = connection
                    receiver = await connection.create_receiver(REPLICATION_QUEUE, credit=_CREDIT)
                    await _Reception(self._route, receiver, self._wait_below_limit).run()
            except* LimitReachedError as group:
                self._restart(str(group.exceptions[0]))
                self._stopping = True
            except* (HaclientError, AddressRefusedError, OwnEventError, OSError) as group:
                self._restart(str(group.exceptions[0]))
            except* Exception:
                # Whatever it was, the next event may be another one.
                self._restart("an unexpected error; see the member's log")
                logger.exception("link %s failed", self._route.name)
            self._connection = None
            if not self._stopping:
                await asyncio.sleep(_PAUSE)

    def _restart(self, why: str) -> None:
        if why != self._ended:
            logger.info("link %s: %s", self._route.name, why)
        self._ended = why

    async def _wait_below_limit(self) -> None:
        """Wait until this site has room for the next event.

        :raises LimitReachedError: when the link is to end instead.
        """
        await self._intake.restarted()
        if not self._route.full:
            return
        why = "the queues of this site are above --max-bytes"
        self._report("limit", f"{why}: the link {'ends' if self._at_limit is AtLimit.STOP else 'waits'}")
        if self._at_limit is AtLimit.STOP:
            raise LimitReachedError(why)
        while self._route.full:
            below_limit = asyncio.Event()
            self._route.when_not_full(below_limit.set)
            await below_limit.wait()

    # -- the connection -------------------------------------------------------------------------

    def _connect(self) -> aio.Opening[aio.Connection]:
        connect = functools.partial(
            aio.connect,
            self._source.url,
            startup_deadline=None,
            telemetry="",
            desired_capabilities=(FOLLOW,),
            on_event=self._on_event,
        )
        if self._source.password_file is None:
            return connect()
        return connect(credentials=self._credentials, **password_options(self._source.url.options))

    async def _credentials(self) -> Credentials:
        path = self._source.password_file
        assert path is not None, "only a link with a password file has credentials"
        try:
            password = await asyncio.to_thread(self._password_files.read, path)
        except PasswordFileError as error:
            if not self._password_error:
                logger.warning("link %s: %s", self._route.name, error)
            self._password_error = str(error)
            raise
        self._password_error = ""
        return Credentials(user=self._source.user, password=password)

    def _on_event(self, event: Event) -> None:
        """Runs on a thread of its own."""
        if isinstance(event, AttemptFailed):
            self._attempt_error = f"{event.record.endpoint}: {event.record.failure.detail}"
        elif isinstance(event, Disconnected):
            self._attempt_error = f"{event.endpoint}: {event.reason}"
        elif isinstance(event, Connected | Reconnected):
            self._attempt_error = ""


class _Reception:
    """The events of one connection.  What becomes safe after its end is ignored."""

    def __init__(
        self, route: Route, receiver: aio.Receiver, wait_below_limit: Callable[[], Awaitable[None]]
    ) -> None:
        self._route = route
        self._wait_below_limit = wait_below_limit
        self._receiver = receiver
        self._safe: deque[aio.Delivery] = deque()
        self._unsafe = 0
        self._became_safe = asyncio.Event()
        self._below_limit = asyncio.Event()

    async def run(self) -> None:
        """Apply events until the connection or the link ends."""
        async with asyncio.TaskGroup() as group:
            accepting = group.create_task(self._accept())
            async for delivery in self._receiver:
                await self._wait_below_limit()
                await self._apply(delivery)
                while self._unsafe >= _CREDIT:
                    self._below_limit.clear()
                    await self._below_limit.wait()
            accepting.cancel()

    async def _apply(self, delivery: aio.Delivery) -> None:
        self._unsafe += 1
        try:
            self._route.enqueue(delivery.data, self._done, delivery)
        except OwnEventError:
            raise
        except MalformedMessageError as error:
            self._unsafe -= 1
            await delivery.reject(DECODE_ERROR, str(error))
        except UnroutableError:
            self._unsafe -= 1
            await delivery.release()

    def _done(self, delivery: Any) -> None:
        self._unsafe -= 1
        self._safe.append(delivery)
        self._became_safe.set()
        self._below_limit.set()

    async def _accept(self) -> None:
        while True:
            await self._became_safe.wait()
            self._became_safe.clear()
            while self._safe:
                try:
                    await self._safe.popleft().accept()
                except (StaleDelivery, AlreadySettled):
                    continue  # it is sent again, and is known then
