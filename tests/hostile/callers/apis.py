"""Calls of an API: ``python -m tests.hostile.callers.apis asyncio|blocking|waiting URL SEED SECONDS``.

``waiting`` has several connections with a receiver each, and waits for messages. So the measured use is
the client's own, and the cost of a connection kept busy by a peer is multiplied.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable
from typing import Any

from haclient import Message, aio
from tests.hostile.callers.report import GRACE, Report, begin
from tests.peers.apis import API, AsyncAPI, BlockingAPI

# Seconds. A call that fails at once is not repeated at once: the test measures the client, not this loop.
_PAUSE = 0.05
_CREDIT = 10
_MOST_LINKS = 4
_WAITING = 10


class Caller:
    """Makes calls, one after the other.

    :param until: the end, in monotonic seconds.
    """

    def __init__(self, api: API, url: str, rng: random.Random, until: float, report: Report) -> None:
        self._api, self._url, self._rng, self._until, self._report = api, url, rng, until, report
        self._links: list[tuple[str, Any]] = []
        self._deliveries: list[Any] = []
        self._sends: list[Any] = []

    async def run(self) -> None:
        """Connect repeatedly."""
        while time.monotonic() < self._until:
            timeout = self._timeout()
            connection = await self._call("connect", self._api.connect(self._url, timeout=timeout), timeout)
            if connection is not None:
                await self._use(connection)
            await asyncio.sleep(_PAUSE)

    async def wait(self) -> None:
        """Connect and wait for messages, repeatedly."""
        while (left := self._until - time.monotonic()) > 0:
            connection = await self._call("connect", self._api.connect(self._url, timeout=left), left)
            if connection is not None:
                call = connection.create_receiver("q", credit=_CREDIT, timeout=left)
                receiver = await self._call("create_receiver", call, left)
                while receiver is not None and (left := self._until - time.monotonic()) > 0:
                    if await self._call("receive", receiver.receive(timeout=left), left) is None:
                        break
                await self._call("close", connection.close(), 1.0)
            await asyncio.sleep(_PAUSE)

    async def _use(self, connection: Any) -> None:
        acts = (self._sender, self._receiver, self._send, self._submit, self._send_many, self._receive)
        more = (self._receive_many, self._settle, self._confirm, self._drain, self._flush, self._close_link)
        for act in self._rng.sample((self._sender, self._receiver), self._rng.randint(0, 2)):
            await act(connection)
        for _ in range(self._rng.randint(5, 60)):
            if time.monotonic() > self._until:
                break
            await self._rng.choice((*acts, *more))(connection)
            await asyncio.sleep(_PAUSE)
        self._links.clear()
        self._deliveries.clear()
        await self._call("close", connection.close(), 1.0)
        for future in self._sends:
            if not future.done():
                self._report.defect("a submitted message has no outcome after close")
            elif not future.cancelled():
                self._report.ended("outcome", future.exception())
        self._sends.clear()

    def _timeout(self) -> float:
        return self._rng.choice((0.05, 0.3, 1.0, 2.0))

    async def _call(self, name: str, call: Awaitable[Any], timeout: float) -> Any:
        """Return the call's result; ``None`` after an error."""
        task = asyncio.ensure_future(call)
        done, _ = await asyncio.wait([task], timeout=timeout + GRACE)
        if not done:
            self._report.hangs(name, timeout)
            self._report.write()
            os._exit(0)
        error = task.exception()
        self._report.ended(name, error)
        return None if error is not None else task.result()

    def _link(self, *kinds: str) -> Any:
        found = [link for name, link in self._links if name in kinds]
        return self._rng.choice(found) if found else None

    # -- calls --------------------------------------------------------------------------------

    async def _sender(self, connection: Any) -> None:
        if len(self._links) < _MOST_LINKS:
            timeout = self._timeout()
            link = await self._call("create_sender", connection.create_sender("q", timeout=timeout), timeout)
            self._links += [("sender", link)] * (link is not None)

    async def _receiver(self, connection: Any) -> None:
        if len(self._links) < _MOST_LINKS:
            timeout, how = self._timeout(), self._rng.choice(({}, {"confirm": True}, {"dynamic": True}))
            address = None if "dynamic" in how else "q"
            call = connection.create_receiver(address, credit=_CREDIT, timeout=timeout, **how)
            link = await self._call("create_receiver", call, timeout)
            kind = "confirming" if "confirm" in how else "receiver"
            self._links += [(kind, link)] * (link is not None)

    async def _send(self, _connection: Any) -> None:
        if (sender := self._link("sender")) is not None:
            timeout = self._timeout()
            await self._call("send", sender.send(self._message(), timeout=timeout), timeout)

    async def _submit(self, _connection: Any) -> None:
        if (sender := self._link("sender")) is not None:
            timeout = self._timeout()
            future = await self._call("submit", sender.submit(self._message(), timeout=timeout), timeout)
            self._sends += [future] * (future is not None)

    async def _send_many(self, _connection: Any) -> None:
        if (sender := self._link("sender")) is not None:
            timeout = self._timeout()
            several = [self._message() for _ in range(5)]
            await self._call("send_many", sender.send_many(several, timeout=timeout), timeout)

    async def _receive(self, _connection: Any) -> None:
        if (receiver := self._link("receiver")) is not None:
            timeout = self._timeout()
            delivery = await self._call("receive", receiver.receive(timeout=timeout), timeout)
            if delivery is not None:
                self._keep(delivery)

    async def _receive_many(self, _connection: Any) -> None:
        if (receiver := self._link("receiver")) is not None:
            timeout = self._timeout()
            found = await self._call("receive_many", receiver.receive_many(5, timeout=timeout), timeout)
            for delivery in found or ():
                self._keep(delivery)

    def _keep(self, delivery: Any) -> None:
        self._deliveries.append(delivery)
        try:
            _ = delivery.message.body, delivery.message.properties, delivery.message.annotations
        except Exception as error:  # noqa: BLE001 - which ones it may be is what the report knows
            self._report.ended("message", error)

    async def _settle(self, _connection: Any) -> None:
        if self._deliveries:
            delivery = self._deliveries.pop(0)
            name = self._rng.choice(("accept", "release", "reject", "modify"))
            arguments = {"delivery_failed": True} if name == "modify" else {}
            await self._call(name, getattr(delivery, name)(**arguments), 0)

    async def _confirm(self, _connection: Any) -> None:
        if (receiver := self._link("confirming")) is not None:
            timeout = self._timeout()
            found = await self._call("receive_many", receiver.receive_many(5, timeout=timeout), timeout)
            if found:
                call = receiver.accept_many(found, confirm=True, timeout=timeout)
                await self._call("accept and confirm", call, timeout)

    async def _drain(self, _connection: Any) -> None:
        if (receiver := self._link("receiver", "confirming")) is not None:
            timeout = self._timeout()
            await self._call("drain", receiver.drain(timeout=timeout), timeout)

    async def _flush(self, _connection: Any) -> None:
        if (sender := self._link("sender")) is not None:
            timeout = self._timeout()
            await self._call("flush", sender.flush(timeout=timeout), timeout)

    async def _close_link(self, _connection: Any) -> None:
        if self._links and self._rng.random() < 0.3:
            _, link = self._links.pop(0)
            await self._call("close of a link", link.close(), 1.0)

    def _message(self) -> Message:
        return Message(body="x" * self._rng.choice((0, 10, 1000)))


async def main(name: str, url: str, seed: str, seconds: str) -> None:
    """Make calls for this many seconds."""
    api = BlockingAPI() if name == "blocking" else AsyncAPI()
    report = begin()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, context: report.defect(
            f"on the loop: {context.get('message')} {context.get('exception')!r}"
        )
    )
    until = time.monotonic() + float(seconds)
    count = _WAITING if name == "waiting" else 1
    callers = [Caller(api, url, random.Random(f"{seed} {n}"), until, report) for n in range(count)]
    await asyncio.gather(*(each.wait() if name == "waiting" else each.run() for each in callers))
    report.write()


if __name__ == "__main__":
    assert aio  # imported before ``ready``
    asyncio.run(main(*sys.argv[1:]))
