"""A program for proton that makes more links than the peer allows in a session gets an error.

proton itself logs ``process error -2`` then, and sends nothing any more on that connection.
"""

from __future__ import annotations

import asyncio
from typing import Any

import proton
import pytest
from proton.handlers import MessagingHandler

from haclient.reactor import Container
from haclient.testing.peers.listening import Peer, listening
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.hostile.broker.limited import Limited, Limits


class Program(MessagingHandler):
    """Makes some senders, when its container starts or when its connection is open."""

    def __init__(self, peer: Peer, links: int, *, failover: bool, early: bool) -> None:
        super().__init__()
        self._url, self._links, self._early = f"amqp://{peer.host}:{peer.port}", links, early
        self._options: dict[str, Any] = {} if failover else {"reconnect": False}
        self.errors: list[str] = []
        self.opened = 0
        self._made = False

    def on_start(self, event: proton.Event) -> None:
        self.connection = event.container.connect(self._url, **self._options)
        if self._early:
            self._create(event.container)

    def on_session_opened(self, event: proton.Event) -> None:
        if not (self._early or self._made):  # with failover there is a session before the program's own
            self._create(event.container)

    def on_connection_opened(self, event: proton.Event) -> None:
        if not self._early:
            event.container.create_sender(self.connection, "first")

    def _create(self, container: Any) -> None:
        self._made = True
        for number in range(self._links):
            container.create_sender(self.connection, f"q{number}")

    def on_link_opened(self, event: proton.Event) -> None:
        self.opened += 1
        if self.opened == self._links + (not self._early):
            self.connection.close()

    def on_transport_error(self, event: proton.Event) -> None:
        self.errors.append(str(event.transport.condition))
        self.connection.close()

    def on_connection_error(self, event: proton.Event) -> None:
        self.errors.append(str(event.connection.remote_condition))


async def run(program: Program) -> None:
    async with asyncio.timeout(10):
        await Container(program).run_async()


@pytest.mark.parametrize("failover", [True, False])
@pytest.mark.parametrize("early", [True, False])
async def test_as_many_as_the_peer_allows(*, failover: bool, early: bool) -> None:
    limits = Limits(9, 1)
    async with listening(lambda _: Limited(limits)) as peer:
        program = Program(peer, 10 if early else 9, failover=failover, early=early)
        await run(program)
    assert (limits.most, limits.violations, program.errors) == (10, 0, [])


@pytest.mark.parametrize("failover", [True, False])
async def test_one_more_raises_where_the_program_makes_it(*, failover: bool) -> None:
    limits = Limits(9, 1)
    async with listening(lambda _: Limited(limits)) as peer:
        with pytest.raises(proton.LinkException, match="the peer takes 10 links in a session at most"):
            await run(Program(peer, 10, failover=failover, early=False))
    assert (limits.most, limits.violations) == (10, 0)


@pytest.mark.parametrize("failover", [True, False])
async def test_links_that_were_made_before_the_connection_end_it_with_an_error(*, failover: bool) -> None:
    limits = Limits(9, 1)
    async with listening(lambda _: Limited(limits)) as peer:
        program = Program(peer, 11, failover=failover, early=True)
        await run(program)
    (text,) = program.errors
    assert ("takes 10 links in a session" in text) if failover else ("10 is more than 9" in text), text
    assert len(limits.connections) == 1


def test_a_blocking_program_gets_the_error_from_its_call() -> None:
    limits = Limits(1, 1)
    with in_thread(listening(lambda _: Limited(limits))) as peer:
        connection = BlockingConnection(peer.address, timeout=10)
        senders = [connection.create_sender("q0"), connection.create_sender("q1")]
        with pytest.raises(proton.LinkException, match=r"'q2'.*2 links"):
            connection.create_sender("q2", name="q2")
        senders.pop().close()
        senders.append(connection.create_sender("q3"))
        for sender in senders:
            sender.send(proton.Message("x"))
        connection.close()
    assert limits.violations == 0


async def test_a_connection_on_which_proton_gives_up_is_lost_and_not_silent() -> None:
    """The peer allows fewer sessions: no check precedes proton's own."""
    limits = Limits(9, 1)

    class Sessions(Program):
        def on_connection_opened(self, event: proton.Event) -> None:
            for _ in range(3):
                self.connection.session().open()

    async with listening(lambda _: Limited(limits)) as peer:
        program = Sessions(peer, 0, failover=True, early=False)
        await run(program)
    (text,) = program.errors
    assert "proton can send nothing more: unable to find an open available channel" in text
