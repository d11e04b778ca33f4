"""The loop runs a thread's post before that thread's later calls.

The loop is woken once for all posts of all threads.  Between another thread's decision to wake the loop and
the wake-up, a thread may append its own post: ``about_to_wake`` makes that moment last.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from haclient import Message, blocking
from haclient.errors import ConnectionClosed, HaclientError, SendTimeout
from haclient.factory.loop_thread import LoopThread
from haclient.testing.threads import in_thread
from tests.peers import primary, url


@contextmanager
def about_to_wake(thread: LoopThread) -> Iterator[None]:
    """Let another thread decide to wake the loop; it does so at the end."""
    thread._awake = True
    yield
    thread._loop.call_soon_threadsafe(thread._run_posted)


def test_a_call_finds_done_what_was_posted_before() -> None:
    thread, done = LoopThread(), list[int]()

    async def look() -> list[int]:
        return [*done]

    with about_to_wake(thread):
        thread.post(done.append, 1)
        thread.post(done.append, 2)
        assert thread.call(look()) == [1, 2]
    thread.stop()
    assert done == [1, 2]


def test_a_message_that_is_reported_as_not_delivered_is_not_sent() -> None:
    """The message was withdrawn before it was submitted, and then submitted, and sent."""
    with in_thread(primary(outcome=None)) as peer, blocking.connect(url(peer)) as connection:
        sender = connection.create_sender("q")
        with about_to_wake(sender._thread), pytest.raises(SendTimeout) as caught:
            sender.send(Message(body="late"), timeout=0)
        assert sender.unsettled == 0
        with pytest.raises(SendTimeout):
            sender.send(Message(body="next"), timeout=0.2)
        arrived = "late" in peer.bodies
        assert not (arrived and caught.value.delivered is False)


def test_a_flush_waits_for_what_the_same_thread_sent_before() -> None:
    with in_thread(primary(outcome=None)) as peer, blocking.connect(url(peer)) as connection:
        sender = connection.create_sender("q")
        with about_to_wake(sender._thread):
            future = sender.submit(Message(body="one"))
            with pytest.raises(SendTimeout):
                sender.flush(timeout=0.1)
        future.cancel()
        connection.close()


def test_a_thread_with_the_number_of_the_one_that_has_ended_is_not_taken_for_it() -> None:
    thread, errors = LoopThread(), list[type]()
    thread.call(asyncio.sleep(0))
    thread.stop()

    def check() -> None:
        try:
            thread.check()
        except HaclientError as error:
            errors.append(type(error))

    # The system reuses a free thread number for the next thread, or soon after.
    for _ in range(10):
        other = threading.Thread(target=check)
        other.start()
        other.join()
    assert set(errors) == {ConnectionClosed}
