"""Callers that do not wait: little time, or a cancellation.  They make a tenth of all sends.

The report of such a call must be true (the checker knows: accepted is there once, not delivered is not
there).  The call must return: if it takes ``_HUNG`` seconds beyond its time, it is recorded as hung.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_futures
from contextlib import suppress

from haclient import Message, aio, blocking
from haclient.errors import HaclientError, MessageNotAccepted, SendTimeout
from haclient.outcome import Outcome
from tests.faults.history import Fate, History, Name

_SHARE = 0.1
# Seconds, by their logarithm: before the wire, on it, and long enough for most.
_LEAST, _MOST = 1e-5, 0.1
_HUNG = 30.0
_TIMEOUT, _CANCELLED, _FUTURE_CANCELLED = _WAYS = ("timeout", "cancelled", "future cancelled")


def is_impatient(rng: random.Random) -> bool:
    """Return whether the next send is by such a caller."""
    return rng.random() < _SHARE


def _seconds(rng: random.Random) -> float:
    return float(_LEAST * (_MOST / _LEAST) ** rng.random())


async def send_impatiently(
    sender: aio.Sender, message: Message, name: Name, rng: random.Random, history: History
) -> asyncio.Future[Outcome]:
    """Send with little time; return when the call has, so that the next message does not overtake it."""
    way, seconds = rng.choice(_WAYS), _seconds(rng)
    call: asyncio.Future[Outcome]
    if way == _TIMEOUT:
        call = asyncio.ensure_future(sender.send(message, timeout=seconds))
    elif way == _CANCELLED:
        call = asyncio.ensure_future(sender.send(message))
    else:
        call = await sender.submit(message)
    if way != _TIMEOUT:
        await asyncio.wait([call], timeout=seconds)
        call.cancel()
    done, _ = await asyncio.wait([call], timeout=seconds + _HUNG)
    if done:
        history.impatient[f"{way}: {_how_it_ended(call)}"] += 1
    else:
        history.hangs(name)
    return call


def _how_it_ended(call: asyncio.Future[Outcome]) -> str:
    return "cancelled" if call.cancelled() else _told(call.exception())


def _told(error: BaseException | None) -> str:
    if error is None:
        return "accepted"
    if isinstance(error, SendTimeout):
        return "timed out, not delivered" if error.delivered is False else "timed out, unknown"
    return type(error).__name__


class BlockingProducer:
    """Sends over the blocking API, from a thread; records its results on the event loop.

    :param name: of its messages.
    :param pause: seconds between two messages.
    :param body: of a message, by its name.
    """

    def __init__(
        self,
        name: str,
        queue: str,
        history: History,
        rng: random.Random,
        *,
        pause: float,
        most: int,
        body: Callable[[Name], str],
    ) -> None:
        self._name = name
        self._queue = queue
        self._history = history
        self._rng = rng
        self._pause = pause
        self._most = most
        self._body = body
        self._ending = threading.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self, url: str, producing_ends: asyncio.Event) -> None:
        """Produce until the event; a thread that does not end then is recorded as hung."""
        ended: asyncio.Future[None] = self._loop.create_future()

        def work() -> None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_end, ended, self._produce(url))

        threading.Thread(target=work, name=f"producer of {self._queue}", daemon=True).start()
        waiting = asyncio.create_task(producing_ends.wait())
        try:
            await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            self._ending.set()
        await asyncio.wait([ended], timeout=2 * _HUNG)
        if not ended.done():
            self._history.hangs(Name(self._name, -1))
        else:
            ended.result()

    def _produce(self, url: str) -> Exception | None:
        try:
            with blocking.connect(url) as connection:
                sender = connection.create_sender(self._queue)
                for number in range(self._most):
                    if self._ending.wait(self._pause):
                        return None
                    self._send(sender, Name(self._name, number))
        except Exception as error:  # noqa: BLE001 - ``run`` raises it
            return error
        return None

    def _send(self, sender: blocking.Sender, name: Name) -> None:
        rng = self._rng
        self._loop.call_soon_threadsafe(self._history.sends, name, self._queue)
        way, seconds = rng.choice((_TIMEOUT, _FUTURE_CANCELLED, "patient")), _seconds(rng)
        seconds = _HUNG if way == "patient" else seconds
        began = time.monotonic()
        error: BaseException | None = None
        try:
            message = Message(body=self._body(name))
            if way == _FUTURE_CANCELLED:
                _send_and_cancel(sender, message, seconds)
            else:
                sender.send(message, timeout=seconds)
        except (HaclientError, CancelledError) as raised:
            error = raised
        late = time.monotonic() - began > seconds + _HUNG
        self._loop.call_soon_threadsafe(self._note, name, fate_of(error), f"{way}: {_told(error)}", late)

    def _note(self, name: Name, fate: Fate, how: str, late: bool) -> None:
        history = self._history
        history.ends(name, fate, time.monotonic())
        history.impatient[f"blocking, {how}"] += 1
        if late:
            history.hangs(name)


def _send_and_cancel(sender: blocking.Sender, message: Message, seconds: float) -> None:
    future = sender.submit(message, timeout=_HUNG)
    wait_futures([future], timeout=seconds)
    future.cancel()
    future.result(timeout=_HUNG)


def _end(ended: asyncio.Future[None], error: Exception | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


def fate_of(error: BaseException | None) -> Fate:
    """Return the fate that the result of a send implies."""
    if error is None:
        return Fate.ACKNOWLEDGED
    refused = isinstance(error, MessageNotAccepted)
    refused |= isinstance(error, HaclientError) and error.delivered is False
    return Fate.REFUSED if refused else Fate.UNKNOWN
