"""A link: receives the events of another site, and has its exchange apply them.

Theory of operation
-------------------
The link finds the primary of the source through ``haclient``, and receives from its replication queue.  It
passes each event to the exchange in the event-loop iteration of its arrival, and accepts it when it is
complete here.  If the connection is lost before that, the link reconnects, and the source sends the event
again.

Rules
-----
* Events are accepted in the order in which they became complete.
* An event is never accepted after its connection was lost: its second copy is recognised.
* If the source refuses (there is no such queue, or another link took over), the link retries later.
* A password is sent only to a source that has SCRAM, or TLS that ``tls_ca`` verifies.
* While this site has no capacity for events (``queue_limits``), the link waits, or ends if so configured.
  Either is reported as an anomaly.
* The password is read before every attempt; an unusable file is reported as the link's error.
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
"""A capability that a link asks for in its Open: to be served only by the primary, as clients are."""

# Credit, and the most incomplete events: half a second of round trip and settlement at 10,000 a second.
_CREDIT = 5000
# Seconds between attempts: longer than a member that resumes after a pause needs to step down.
_PAUSE = 2.0


STOPPED = "stopped"


class LimitReachedError(Exception):
    """This site takes no further events, and the link must end."""


class SiteLink:
    """The link of one exchange.

    :param source: the cluster of the source.
    :param password_files: the files for its password.
    :param intake: while it is stopped, nothing is applied.
    :param at_limit: the reaction when this site has no capacity.
    :param report: called with an anomaly at the limit: its case and a description.
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
        """The state of its connection, or ``stopped``."""
        if self._stopping:
            return STOPPED
        state = State.CONNECTING if self._connection is None else self._connection.state
        return state.value

    @property
    def error(self) -> str:
        """The reason why it is not connected; if it is connected, the reason of its last restart."""
        return self._password_error or self._attempt_error or self._ended

    def stop(self) -> asyncio.Task[None]:
        """Apply nothing more from now on; the returned task ends soon.

        The flag is needed because a task group may swallow the cancellation, if it ends with an error in the
        same iteration of the loop.
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
                # Retry: the error may have been caused by one event only.
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
        """Wait until this site has capacity for the next event.

        :raises LimitReachedError: when the link must end instead.
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
        """Record connection errors; called on another thread."""
        if isinstance(event, AttemptFailed):
            self._attempt_error = f"{event.record.endpoint}: {event.record.failure.detail}"
        elif isinstance(event, Disconnected):
            self._attempt_error = f"{event.endpoint}: {event.reason}"
        elif isinstance(event, Connected | Reconnected):
            self._attempt_error = ""


class _Reception:
    """The events of one connection.  Completions after its end are ignored."""

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
                    continue  # the source sends it again, and it is recognised as a duplicate
