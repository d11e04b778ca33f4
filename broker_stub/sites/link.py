"""A link: receives the events of another site, and has its exchange carry them out.

Theory of operation
-------------------
``run`` goes round for ever: find the primary of the source (``haclient`` does), receive from its
replication queue, hand each event to the exchange in the turn in which it comes, and accept it
when that says that it is safe.  What is not accepted when the connection is lost comes again.

Rules
-----
* Events are accepted in the order in which they became safe.
* An event of a connection that is lost is not accepted any more: it is known when it comes again.
* When the source says no (there is no such queue, another link took over) it is asked again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from broker_stub.exchanges import Exchange, Route, UnroutableError
from broker_stub.sections import MalformedMessageError
from broker_stub.sites.modes import REPLICATION_QUEUE
from haclient import aio
from haclient.discovery.cluster_url import ClusterURL
from haclient.errors import AlreadySettled, HaclientError, StaleDelivery
from haclient.links.connection import State

logger = logging.getLogger("broker_stub.sites")

# Events on their way or not safe yet: half a second of round trip and settling at 10,000 a second.
_CREDIT = 5000
# Seconds until the source is asked again.  Longer than a member that woke up too late needs to step down.
_PAUSE = 2.0


class Link:
    """The link of one exchange.

    :param url: of the source's cluster.
    """

    def __init__(self, exchange: Exchange, url: ClusterURL) -> None:
        self.url = url
        self.error = ""
        """Why it last had to begin anew."""
        self._stopping = False
        self._route = Route(exchange)
        self._connection: aio.Connection | None = None
        self._safe: deque[aio.Delivery] = deque()
        self._became_safe = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link {exchange.name}")

    @property
    def state(self) -> str:
        """That of its connection."""
        state = State.CONNECTING if self._connection is None else self._connection.state
        return state.value

    def stop(self) -> asyncio.Task[None]:
        """Carry out nothing more from now on; the task ends soon.

        The flag is for a cancellation that a task group swallows, as one does that ends with an error
        in the same turn.
        """
        self._stopping = True
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while not self._stopping:
            try:
                async with aio.connect(self.url, startup_deadline=None, telemetry="") as connection:
                    self._connection = connection
                    await self._receive(connection)
            except* (HaclientError, OSError) as group:
                self.error = str(group.exceptions[0])
                logger.info("link %s: %s", self._route.name, self.error)
            except* Exception:
                # Whatever it was, the next event may be another one.
                self.error = "it failed; see the member's log"
                logger.exception("link %s failed", self._route.name)
            self._connection = None
            if not self._stopping:
                await asyncio.sleep(_PAUSE)

    async def _receive(self, connection: aio.Connection) -> None:
        receiver = await connection.create_receiver(REPLICATION_QUEUE, credit=_CREDIT)
        async with asyncio.TaskGroup() as group:
            accepting = group.create_task(self._accept())
            async for delivery in receiver:
                await self._carry_out(delivery)
            accepting.cancel()

    async def _carry_out(self, delivery: aio.Delivery) -> None:
        try:
            self._route.enqueue(delivery.data, self._done, delivery)
        except MalformedMessageError as error:
            await delivery.reject("amqp:decode-error", str(error))
        except UnroutableError:
            await delivery.release()

    def _done(self, delivery: Any) -> None:
        self._safe.append(delivery)
        self._became_safe.set()

    async def _accept(self) -> None:
        while True:
            await self._became_safe.wait()
            self._became_safe.clear()
            while self._safe:
                try:
                    await self._safe.popleft().accept()
                except (StaleDelivery, AlreadySettled):
                    continue  # it comes again, and is known then
