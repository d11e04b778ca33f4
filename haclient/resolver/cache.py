"""Answers of a name service, kept while they are valid, and longer if no newer one arrives.

Rules:

- An answer is reused until its TTL has passed; then the question is asked again.
- If a question fails, for any reason, the last answer stays in force; that is logged.  Only a name that never
  had an answer is an error.  (RFC 8767 calls this serving stale data.)
- One question at a time for a name: callers that ask meanwhile wait for the same one.
- Answers for at most ``MOST_NAMES`` are kept; then the least recently used one is removed.  An SRV server may
  name new targets at any time.
- A waiter may be cancelled, or stop waiting; the question continues for other and later callers.  ``close``
  ends the running questions.

This module does not know DNS; the question and the clock are arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from haclient.error_catalog.base import HaclientError
from haclient.printable.log import get_logger
from haclient.printable.text import printable

T = TypeVar("T")

# Four times the targets of one SRV answer: a seed list, with targets that change now and then.
MOST_NAMES = 256

_log = get_logger(__name__)


class ResolutionError(HaclientError):
    """A name has no address, and never had one.

    :ivar name: the name asked for.
    :ivar reason: the servers asked, and the result of each question.
    """

    code = "unresolved"
    connection_usable = False

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return printable(f"cannot resolve {self.name!r}: {self.reason}")


class Unanswered(Exception):
    """A question got no answer; the argument is the reason."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer to a question.

    :param ttl: seconds for which it is valid; with 0 it is used only once.
    """

    value: T
    ttl: float


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    expires: float


class Answers(Generic[T]):
    """The answers to one kind of question, by name.

    :param ask: given a name and the last answer to it; raises ``Unanswered``.  Must end by itself: no caller
        ends it.
    :param clock: monotonic seconds; only TTLs are measured with it.
    """

    def __init__(
        self, ask: Callable[[str, T | None], Awaitable[Answer[T]]], clock: Callable[[], float]
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._kept: dict[str, _Kept[T]] = {}
        self._running: dict[str, asyncio.Task[str]] = {}

    async def get(self, name: str, until: float) -> T:
        """Return the answer for a name, waiting for it no longer than ``until`` on the loop's clock.

        :raises ResolutionError: if there is none and never was.
        """
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._kept[name] = kept  # now the most recently used one
        if kept is not None and self._clock() < kept.expires:
            return kept.value
        failure = await self._wait(self._question(name), until)
        kept = self._kept.get(name)
        if kept is None:
            raise ResolutionError(name, failure)
        if failure:
            _log.warning("keeping the last answer for %r: %s", name, failure)
        return kept.value

    async def close(self) -> None:
        """Cancel the running questions; their waiters get the last answer or an error."""
        tasks = tuple(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _question(self, name: str) -> asyncio.Task[str]:
        if name not in self._running:
            self._running[name] = asyncio.create_task(self._ask_once(name), name=f"resolve {name}")
        return self._running[name]

    async def _ask_once(self, name: str) -> str:
        """Ask once; return why there is no answer, or an empty text if there is one."""
        last = self._kept.get(name)
        try:
            answer = await self._ask(name, last.value if last else None)
        except Unanswered as unanswered:
            return str(unanswered)
        finally:
            self._running.pop(name, None)
        self._kept.pop(name, None)
        self._kept[name] = _Kept(answer.value, self._clock() + answer.ttl)
        if len(self._kept) > MOST_NAMES:
            del self._kept[next(iter(self._kept))]
        return ""

    async def _wait(self, task: asyncio.Task[str], until: float) -> str:
        # asyncio.wait and not await: a cancelled waiter must not cancel the question.
        left = until - asyncio.get_running_loop().time()
        await asyncio.wait({task}, timeout=max(0.0, left))
        if not task.done():
            return "no answer in time"
        return "the resolver was closed" if task.cancelled() else task.result()
