"""The lifetime of a dynamic queue, by the policy that its creator asked for.

Rules
-----
* Without a policy the queue ends with the link that made it.  No policy ends it earlier.
* The queue always ends with its connection, because no other connection may take from it.

Source: AMQP 1.0 part 3, sections 3.5.9 to 3.5.13 (lifetime policies).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence

from broker_stub.queueing.message import Message
from broker_stub.queueing.queue import Queue


class LifetimePolicy(enum.IntEnum):
    """The condition for deleting a dynamic node: the descriptors of the policies."""

    DELETE_ON_CLOSE = 0x2B
    DELETE_ON_NO_LINKS = 0x2C
    DELETE_ON_NO_MESSAGES = 0x2D
    DELETE_ON_NO_LINKS_OR_MESSAGES = 0x2E


class NodeLifetime:
    """The lifetime of one dynamic queue (a ``message.Observer`` of it).

    :param delete: called once, with the queue, when its lifetime ends.
    """

    __slots__ = ("_delete", "_ended", "_has_creator", "_links", "_policy", "_queue")

    def __init__(self, queue: Queue, policy: LifetimePolicy, delete: Callable[[Queue], None]) -> None:
        self._queue = queue
        self._policy = policy
        self._delete = delete
        self._links = 0
        self._has_creator = True
        self._ended = False
        if policy in _WAITS_FOR_MESSAGES:
            queue.observe(self)

    def attached(self) -> None:
        """Count a new link to the queue."""
        self._links += 1

    def detached(self, *, is_creator: bool) -> None:
        """Handle the end of a link to the queue.

        :param is_creator: True if the link made the queue.
        """
        self._links -= 1
        self._has_creator = self._has_creator and not is_creator
        self.check()

    def check(self) -> None:
        """Delete the queue if its policy says so now."""
        if self._ended or self._queue.deleted or self._has_creator:
            return
        waits_for_links = self._policy in _WAITS_FOR_LINKS and self._links
        waits_for_messages = self._policy in _WAITS_FOR_MESSAGES and self._queue.depth
        if not waits_for_links and not waits_for_messages:
            self._ended = True
            self._delete(self._queue)

    # -- the queue's observer -------------------------------------------------------------------

    def enqueued(self, queue: Queue, message: Message) -> None:
        """Ignored: one more message does not end the queue."""

    def dequeued(self, queue: Queue, message: Message) -> None:
        """Check again in the next iteration of the loop, after the queue has completed the removal."""
        asyncio.get_running_loop().call_soon(self.check)

    def withdrawn(self, queue: Queue, message: Message) -> None:
        """Ignored: the lifetime never depended on this message."""

    def acquired(self, queue: Queue, message: Message) -> None:
        """Ignored: the message is still in the queue."""

    def annotated(self, queue: Queue, message: Message) -> None:
        """Ignored: the message is still in the queue."""

    def confirmed(self, queue: Queue, numbers: Sequence[int], owner: bytes, completion: Message) -> None:
        """Ignored: only queue depth matters."""

    def progress_changed(self, queue: Queue, completion: Message) -> None:
        """Ignored: a dynamic queue has no site progress."""


_WAITS_FOR_LINKS = (LifetimePolicy.DELETE_ON_NO_LINKS, LifetimePolicy.DELETE_ON_NO_LINKS_OR_MESSAGES)
_WAITS_FOR_MESSAGES = (LifetimePolicy.DELETE_ON_NO_MESSAGES, LifetimePolicy.DELETE_ON_NO_LINKS_OR_MESSAGES)
