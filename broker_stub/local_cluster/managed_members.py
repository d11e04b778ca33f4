"""The members of a pair as its manager sees them, and what became of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker_stub.local_cluster.state import Member, MemberState, PairEvent

logger = logging.getLogger("broker_stub.local_cluster.supervisor")


class Roster:
    """Every member; tells whoever waits when one of them changes.

    :ivar changed: set when a decision may be needed.
    :param on_event: called with each event; what it raises is logged.
    """

    def __init__(self, on_event: Callable[[PairEvent], None] | None = None) -> None:
        self.members: tuple[Member, ...] = ()
        self.events: list[PairEvent] = []
        self.changed = asyncio.Event()
        self._on_event = on_event
        self._news = asyncio.Event()
        self._generation = 0

    @property
    def generation(self) -> int:
        """The highest generation seen."""
        self._generation = max(self._generation, *(member.generation for member in self.members), 0)
        return self._generation

    @property
    def primary(self) -> Member | None:
        """The primary, ``None`` while there is none."""
        primaries = [member for member in self.members if member.state.serves]
        return max(primaries, key=lambda member: member.generation, default=None)

    @property
    def ready(self) -> bool:
        """Whether there is one primary and every other member is ready and knows it."""
        primary = self.primary
        if primary is None or not primary.alive:
            return False
        others = [member for member in self.members if member is not primary]
        follow = all(member.follows == primary.address for member in others)
        return follow and all(member.state is MemberState.READY for member in others)

    def now(self, member: Member, state: MemberState) -> None:
        """A member's state."""
        member.state = state
        self.changed.set()
        self.spread()

    def tell(self, kind: str, member: Member, detail: str) -> None:
        """Something happened to a member."""
        event = PairEvent(kind, member.name, detail)
        logger.info("%s %s: %s", member.name, kind, detail)
        self.events.append(event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                logger.exception("a listener failed; the pair goes on")
        self.spread()

    def spread(self) -> None:
        """Wake whoever waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self) -> None:
        """Wait until a member changes."""
        await self._news.wait()
