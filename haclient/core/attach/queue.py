"""Queue of links to attach over a session: all at once, or one by one (see ``suspects``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar


class Attachable(Protocol):
    """Interface of a link."""

    @property
    def unanswered(self) -> bool:
        """Return whether the link is attached and the peer has not answered."""


L = TypeVar("L", bound=Attachable)


class AttachQueue(Generic[L]):
    """Links still to be attached over the present session.

    :param attach: attaches a link.
    :param patience: seconds to wait for an answer before the next link is attached.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, attach: Callable[[L], None], patience: float) -> None:
        self._loop = loop
        self._attach = attach
        self._patience = patience
        self.one_by_one = False
        self._waiting: list[L] = []  # an empty deque takes ten times the memory, in each idle connection
        self._timer: asyncio.TimerHandle | None = None
        self._pending: L | None = None

    def begin(self, links: Iterable[L], *, one_by_one: bool) -> None:
        """Attach the links over a new session."""
        self.clear()
        self.one_by_one = one_by_one
        for link in links:
            self.add(link)

    def add(self, link: L) -> None:
        """Attach one more link, in order."""
        if self.one_by_one:
            self._waiting.append(link)
            if self._pending is None:
                self.next()
        else:
            self._attach(link)

    def remove(self, link: L) -> None:
        """Remove a link that is closed or answered; attach the next one if it was pending."""
        if link in self._waiting:
            self._waiting.remove(link)
        if link is self._pending:
            self.next()

    def clear(self) -> None:
        """Remove all links: the session ended."""
        self._cancel()
        self._waiting.clear()
        self._pending = None

    def next(self) -> None:
        """Attach the next link, and wait for its answer."""
        self._cancel()
        self._pending = None
        while self._waiting and self._pending is None:
            link = self._waiting.pop(0)
            self._attach(link)
            if link.unanswered:
                self._pending = link
                self._timer = self._loop.call_later(self._patience, self.next)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
