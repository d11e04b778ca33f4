"""Feeds with a message that cannot be sent, and with a message that is not in its queue after all."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from broker_stub.amqp.message_format import inspect
from broker_stub.queueing.duplicate_detection import NO_MESSAGE, DuplicateWindow
from tests.broker_stub.replication.test_queue_feed import (
    Primary,
    attached,
    encoded,
    grant,
    known,
    make,
    put,
    replicated,
)


async def test_a_message_that_cannot_be_sent_fails_its_replica_and_no_producer() -> None:
    queue, done = make(), []
    replica, _, link = attached(queue)
    reported = mock.patch.object(Primary, "queue_set_aside", create=True)
    other, _, its_link = attached(queue)
    grant(link, 10)
    grant(its_link, 10)
    with reported, mock.patch.object(link, "send", side_effect=[OverflowError("too large"), None]):
        queue.enqueue(encoded("a"), done.append, "settled", inspect(encoded("a")))
    assert done == ["settled"]
    assert replica.queues_set_aside() == {"q": "message 1 cannot be sent: too large"}
    assert not other.queues_set_aside()
    backup, _ = await replicated(its_link)
    assert backup.ids() == [1]


async def test_a_message_that_is_not_in_after_all_leaves_its_replicas_with_its_id() -> None:
    queue = make()
    _, _, link = attached(queue)
    grant(link, 10)
    with (
        mock.patch.object(DuplicateWindow, "remember", side_effect=OverflowError("after the feed")),
        pytest.raises(OverflowError),
    ):
        put(queue, "a")
    await asyncio.sleep(0)
    backup, stored = await replicated(link)
    assert (backup.ids(), known(backup)) == ([], [])
    assert [number for _, number in stored] == [1, NO_MESSAGE]
    put(queue, "a")
    await asyncio.sleep(0)
    backup, _ = await replicated(link)
    assert (backup.ids(), known(backup)) == ([2], ["a"])
