"""The client's puts into ``$cbs``, against a peer that answers late, wrongly, or not at all."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from proton import Condition, Message

from haclient import Token, aio
from haclient.engine import codec
from haclient.engine.links import ReceiverLink
from haclient.engine.owner import CloseReason
from haclient.errors import LinkRefused
from haclient.events import Disconnected, Event
from haclient.outcome import Outcome, OutcomeState
from haclient.testing.peers.listening import PeerEngine, listening, settings, url
from tests.peers.primary import Primary


@dataclass(frozen=True, slots=True)
class Put:
    """One request that a client has sent."""

    number: Any
    name: str
    token: Any


@dataclass(slots=True)
class Node(Primary):
    """A member with ``$cbs``.

    :ivar answers: whether it answers puts at once.
    :ivar refused: tokens that it refuses with 401.
    """

    answers: bool = True
    refuses_tokens: set[str] = field(default_factory=set)
    puts: list[Put] = field(default_factory=list)

    def delivered(self, link: ReceiverLink, delivery: Any, data: bytes) -> None:
        """Take a put, or any other message."""
        Primary.delivered(self, link, delivery, data)
        if link.endpoint.target.address == "$cbs":
            message = codec.decode(self.received.pop())
            put = Put(message.id, message.properties["name"].rpartition("/")[2], message.body)
            self.puts.append(put)
            if self.answers:
                self.answer(put)

    def answer(self, put: Put, **changes: Any) -> None:
        """Answer a put; ``changes`` are properties of the answer, or its correlation id."""
        status = 401 if put.token in self.refuses_tokens else 202
        correlation = changes.pop("correlation_id", put.number)
        properties = {"status-code": status, "status-description": "as asked", **changes}
        self.put_encoded("$cbs", bytes(Message(correlation_id=correlation, properties=properties).encode()))

    def ended(self, engine: PeerEngine, reason: CloseReason) -> None:
        """Forget the connection with its answers."""
        Primary.ended(self, engine, reason)
        self.queues.pop("$cbs", None)

    def attached(self, address: str) -> int:
        """Return how many links to this address the client has not closed."""
        return sum(
            address in (each.endpoint.target.address, each.endpoint.source.address)
            for links in self.engines.values()
            for each in links
        )


@asynccontextmanager
async def node(**facts: Any) -> AsyncIterator[Node]:
    def serve(peer: Node) -> PeerEngine:
        return PeerEngine(peer, settings(container_id="node"))

    async with listening(serve, lambda host, port: Node(host, port, **facts)) as peer:
        yield peer


class Supply:
    """Tokens ``t1``, ``t2`` and so on, which live for long."""

    asked = 0

    def __call__(self) -> Token:
        self.asked += 1
        return Token(f"t{self.asked}", time.time() + 9000)


def connect(peer: Node, credentials: object, **options: Any) -> Any:
    events: list[Event] = options.pop("events", [])
    target = url(peer, sasl_mechanisms="ANONYMOUS", **options)
    return aio.connect(target, credentials=credentials, on_event=events.append)  # type: ignore[arg-type]


@pytest.fixture
def renews_at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that sets the seconds after which a token is renewed."""

    def renew_after(seconds: float) -> None:
        for name, value in (("_EARLIEST", 0.0), ("_LATEST", 0.0), ("_LEAST_WAIT", seconds)):
            monkeypatch.setattr(f"haclient.core.renewal.schedule.{name}", value)

    return renew_after


async def test_each_address_gets_one_put_however_many_links_it_has() -> None:
    """More addresses than the node's answers have credit; its links are closed at the end."""
    rng = random.Random()
    addresses = [f"q{rng.randrange(150)}" for _ in range(300)]
    async with node(grants=7) as peer, connect(peer, Token("one")) as connection:
        await asyncio.gather(
            *(rng.choice((connection.create_sender, connection.create_receiver))(each) for each in addresses)
        )
        assert Counter(put.name for put in peer.puts) == Counter(set(addresses))
        await peer.until(lambda: peer.attached("$cbs") == 0)
        attached = len(peer.attaches)
        await connection.create_sender(addresses[0])
        assert len(peer.attaches) == attached + 1  # no other put


async def test_a_put_without_an_answer_is_repeated_with_the_new_token(
    renews_at_once: Callable[[float], None],
) -> None:
    """The answer to the first one, which comes later, counts for nothing."""
    renews_at_once(0.05)
    supply = Supply()
    async with node(answers=False) as peer, connect(peer, supply) as connection:
        creating = asyncio.create_task(connection.create_sender("q"))
        await peer.until(lambda: len(peer.puts) >= 2)
        renews_at_once(9000)
        first = peer.puts[0]
        peer.answer(first)
        other = asyncio.create_task(connection.create_sender("other"))
        await peer.until(lambda: peer.puts[-1].name == "other")
        peer.answer(peer.puts[-1])
        await other
        assert not creating.done()
        last = [put for put in peer.puts if put.name == "q"][-1]
        assert last.token != first.token
        peer.answer(last)
        assert (await (await creating).send("x", timeout=10)).accepted


async def test_a_refused_renewal_is_logged_and_the_next_token_is_put(
    renews_at_once: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    renews_at_once(0.05)
    supply, events = Supply(), list[Event]()
    async with node(refuses_tokens={"t2", "t3"}) as peer, connect(peer, supply, events=events) as connection:
        sender = await connection.create_sender("q")
        await peer.until(lambda: len(peer.puts) >= 4)
        assert (await sender.send("x", timeout=10)).accepted
    assert [put.token for put in peer.puts][:4] == ["t1", "t2", "t3", "t4"]
    refused = "its new token was refused: $cbs refuses the token for 'q': 401 as asked"
    assert sum(refused in record.getMessage() for record in caplog.records) == 2
    assert not [event for event in events if isinstance(event, Disconnected)]


async def test_a_renewal_puts_for_the_addresses_that_have_links(
    renews_at_once: Callable[[float], None],
) -> None:
    renews_at_once(9000)
    supply = Supply()
    async with node() as peer, connect(peer, supply) as connection:
        kept, closed = [await connection.create_sender(name) for name in ("kept", "closed")]
        await closed.close()
        core = connection._core
        assert await core.links.claims.renew("new", core.links.all) == ""
        assert [(put.name, put.token) for put in peer.puts[2:]] == [("kept", "new")]
        assert (await kept.send("x", timeout=10)).accepted


async def test_after_a_refused_renewal_new_links_get_the_former_token() -> None:
    async with node(refuses_tokens={"new"}) as peer, connect(peer, Token("former")) as connection:
        await connection.create_sender("q")
        claims = connection._core.links.claims
        assert "401" in await claims.renew("new", connection._core.links.all)
        await connection.create_sender("other")
    assert [(put.name, put.token) for put in peer.puts] == [
        ("q", "former"),
        ("q", "new"),
        ("other", "former"),
    ]


async def test_a_renewal_without_links_puts_for_the_addresses_so_far() -> None:
    """So that the log-in lives on."""
    async with node() as peer, connect(peer, Token("one")) as connection:
        await (await connection.create_sender("closed")).close()
        assert await connection._core.links.claims.renew("new", connection._core.links.all) == ""
    assert [(put.name, put.token) for put in peer.puts] == [("closed", "one"), ("closed", "new")]


async def test_a_dynamic_node_is_renewed_by_the_address_that_was_put() -> None:
    async with node() as peer, connect(peer, Token("one")) as connection:
        core = connection._core.links.claims
        core._allowed.update({"", "gone"})
        assert await core.renew("new", [SimpleNamespace(address="temporary-7")]) == ""
    assert [(put.name, put.token) for put in peer.puts] == [("", "new")]


async def test_a_node_that_is_slow_but_steady_is_waited_for() -> None:
    """The limit of time is for each answer, not for all."""
    events = list[Event]()
    async with (
        node(answers=False) as peer,
        connect(peer, Token("one"), events=events, attempt_timeout=3) as connection,
    ):
        creating = [asyncio.create_task(connection.create_sender(f"q{number}")) for number in range(8)]
        for number in range(8):
            await peer.until(lambda number=number: len(peer.puts) > number)  # type: ignore[misc]
            await asyncio.sleep(0.4)
            peer.answer(peer.puts[number])
        await asyncio.gather(*creating)
    assert not [event for event in events if isinstance(event, Disconnected)]


async def test_a_put_that_is_released_after_a_newer_one_counts_for_nothing() -> None:
    async with node(answers=False, grants=1, outcome=None) as peer, connect(peer, Token("one")) as connection:
        creating = [asyncio.create_task(connection.create_sender(name)) for name in ("a", "b")]
        await peer.until(lambda: len(peer.puts) == 1)  # the other one waits for credit
        claims = connection._core.links.claims
        renewing = asyncio.create_task(claims.renew("new", connection._core.links.all))
        await asyncio.sleep(0)
        claims.settled(claims._links[0], 1, Outcome(OutcomeState.RELEASED))
        peer.grant(10)
        await peer.until(lambda: len(peer.puts) == 3)
        for put in peer.puts[1:]:
            assert put.token == "new"
            peer.answer(put)
        await asyncio.gather(*creating)
        assert await renewing == ""


@pytest.mark.parametrize("status", [500, 503, 599])
async def test_a_node_that_cannot_answer_now_is_asked_again_over_another_session(status: int) -> None:
    events = list[Event]()
    async with (
        node(answers=False) as peer,
        connect(peer, Token("one"), events=events, backoff_base=0.01) as connection,
    ):
        creating = asyncio.create_task(connection.create_sender("q"))
        await peer.until(lambda: peer.puts)
        peer.answer(peer.puts[0], **{"status-code": status})
        await peer.until(lambda: len(peer.puts) == 2)
        peer.answer(peer.puts[1])
        assert (await (await creating).send("x", timeout=10)).accepted
    (lost,) = [event for event in events if isinstance(event, Disconnected)]
    assert f"cannot take the token now: {status} as asked" in lost.reason


@pytest.mark.parametrize("how", ["answer", "detach"])
async def test_a_node_that_repeats_the_token_does_not_show_it(how: str) -> None:
    token = "a-secret-token"
    async with node(answers=False) as peer, connect(peer, Token(token)) as connection:
        creating = asyncio.create_task(connection.create_sender("q"))
        await peer.until(lambda: peer.puts)
        if how == "answer":
            text = f"no such token: {token}"
            peer.answer(peer.puts[0], **{"status-code": 401, "status-description": text})
        else:
            peer.detach(Condition("amqp:not-found", f"no such token: {token}"))
        with pytest.raises(LinkRefused, match=r"no such token: \*\*\*") as caught:
            await creating
    assert token not in str(caught.value)


async def test_a_node_that_does_not_answer_ends_the_session() -> None:
    events = list[Event]()
    async with (
        node(answers=False) as peer,
        connect(peer, Token("one"), events=events, attempt_timeout=1, backoff_base=0.01) as connection,
    ):
        creating = asyncio.create_task(connection.create_sender("q"))
        await peer.until(lambda: len(peer.puts) >= 2)
        peer.answers = True
        peer.answer(peer.puts[-1])
        assert (await (await creating).send("x", timeout=10)).accepted
    lost = [event for event in events if isinstance(event, Disconnected)]
    assert "$cbs did not answer" in lost[0].reason


async def test_a_node_that_is_detached_while_a_put_waits_refuses_the_link() -> None:
    async with node(answers=False) as peer, connect(peer, Token("one")) as connection:
        creating = asyncio.create_task(connection.create_sender("q"))
        await peer.until(lambda: peer.puts)
        peer.detach(Condition("amqp:link:detach-forced", "idle for 10 minutes"))
        with pytest.raises(LinkRefused, match=r"takes no tokens in \$cbs: amqp:link:detach-forced: idle"):
            await creating


@pytest.mark.parametrize(
    "odd",
    [
        {"correlation_id": None},
        {"correlation_id": 7},
        {"correlation_id": "-1"},
        {"correlation_id": "9" * 400},
        {"correlation_id": "\u0661"},  # a digit, but none of ASCII
        {"correlation_id": b"1"},
    ],
    ids=repr,
)
async def test_an_answer_to_no_put_is_ignored(odd: dict[str, Any]) -> None:
    async with node(answers=False) as peer, connect(peer, Token("one")) as connection:
        creating = asyncio.create_task(connection.create_sender("q"))
        await peer.until(lambda: peer.puts)
        peer.answer(peer.puts[0], **odd)
        peer.put_encoded("$cbs", b"", b"\x00", random.randbytes(50))
        other = asyncio.create_task(connection.create_sender("other"))
        await peer.until(lambda: len(peer.puts) == 2)
        peer.answer(peer.puts[1])
        await other
        assert not creating.done()
        peer.answer(peer.puts[0])
        await creating


@pytest.mark.parametrize(
    "status",
    [{"status-code": 0}, {"status-code": "202"}, {"status-code": None}, {"status-code": 300}],
    ids=repr,
)
async def test_an_answer_without_a_success_is_a_refusal(status: dict[str, Any]) -> None:
    async with node(answers=False) as peer, connect(peer, Token("one")) as connection:
        creating = asyncio.create_task(connection.create_sender("q"))
        await peer.until(lambda: peer.puts)
        peer.answer(peer.puts[0], **status)
        with pytest.raises(LinkRefused, match="refuses the token for 'q'"):
            await creating
