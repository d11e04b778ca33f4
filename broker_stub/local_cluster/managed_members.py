"""The members of a local cluster as its supervisor sees them, and the log of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_stub.local_cluster.state import LocalClusterEvent, Member, MemberState
from haclient.printable.log import get_logger

logger = get_logger("broker_stub.local_cluster.supervisor")


class ManagedMembers:
    """All members; wakes the waiters when one of them changes.

    :ivar changed: set when the primary selector should decide again.
    :param on_event: called with each event; its exceptions are logged.
    """

    def __init__(self, on_event: Callable[[LocalClusterEvent], None] | None = None) -> None:
        self.members: tuple[Member, ...] = ()
        self.events: list[LocalClusterEvent] = []
        self.changed = asyncio.Event()
        self._on_event = on_event
        self._next_change = asyncio.Event()
        self._generation = 0
        self.start_reports = 0
        """Number of progress reports by starting members."""

    @property
    def generation(self) -> int:
        """The highest generation seen."""
        self._generation = max(self._generation, *(member.generation for member in self.members), 0)
        return self._generation

    @property
    def primary(self) -> Member | None:
        """The primary, or ``None`` while no member is primary."""
        primaries = [member for member in self.members if member.state.serves]
        return max(primaries, key=lambda member: member.generation, default=None)

    @property
    def ready(self) -> bool:
        """Return whether one member is primary and all others are ready and follow it."""
        primary = self.primary
        if primary is None or not primary.alive:
            return False
        others = [member for member in self.members if member is not primary]
        follow = all(member.follows == primary.address for member in others)
        return follow and all(member.state is MemberState.READY for member in others)

    def set_state(self, member: Member, state: MemberState) -> None:
        """Set a member's state and wake the waiters."""
        member.state = state
        self.changed.set()
        self.notify()

    def emit(self, kind: str, member: Member, detail: str) -> None:
        """Log an event, keep it, and pass it to the listener."""
        self.start_reports += kind == "starting"
        event = LocalClusterEvent(kind, member.name, detail)
        logger.info("%s %s: %s", member.name, kind, detail)
        self.events.append(event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                logger.exception("the listener raised; the cluster continues")
        self.notify()

    def notify(self) -> None:
        """Wake the waiters."""
        self._next_change.set()
        self._next_change = asyncio.Event()

    async def wait_for_change(self) -> None:
        """Wait until a member changes."""
        await self._next_change.wait()
