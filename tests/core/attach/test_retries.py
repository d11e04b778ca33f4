"""Links that a peer refuses for a while, redirects, or that end their connection."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from typing import Any, get_args

import proton
import pytest
from proton import Condition, symbol

from haclient import Message, State, aio
from haclient.cli.formatting import json_of, line_of
from haclient.errors import (
    ConnectionClosed,
    DeliveryUnknown,
    LinkClosed,
    LinkRefused,
    SendTimeout,
    StaleDelivery,
)
from haclient.events import Disconnected, Event, LinkRetrying, Reconnected
from haclient.outcome import ACCEPTED
from haclient.telemetry import record
from haclient.testing.virtual_clock import VirtualTime
from tests.peers import Primary, primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

FAST = {"backoff_base": 0.001, "backoff_max": 0.01}
LIMIT = "AMQ229200: Maximum Consumer Limit Reached on Queue:(address=a,queue=q)"
PATIENT = [
    Condition("amqp:resource-locked", "another connection holds it"),
    Condition("amqp:link:detach-forced", "moving"),
    Condition("amqp:internal-error", "starting"),
    Condition("amqp:resource-limit-exceeded", "too many"),
    Condition("amqp:not-found", "not restored yet"),
    Condition("amqp:not-allowed", LIMIT),
]
FINAL = [
    Condition(name, "for good")
    for name in (
        "amqp:resource-deleted",
        "amqp:unauthorized-access",
        "amqp:not-allowed",
        "amqp:not-implemented",
        "amqp:link:stolen",
        "amqp:invalid-field",
    )
]
LOCKED, NOT_FOUND = PATIENT[0], PATIENT[4]


def name_of(condition: Condition) -> str:
    return condition.name.rpartition(":")[2] + (" by limit" if condition.description == LIMIT else "")


conditions = pytest.mark.parametrize("condition", PATIENT, ids=name_of)


def attaches(peer: Primary, address: str) -> list[float]:
    """Return when each Attach of this address arrived."""
    return [time for node, time in peer.attaches if node == address]


async def refused(watch: Watch, peer: Primary, condition: Condition, *addresses: str) -> None:
    """Lose the connection, and wait until the peer has refused these links twice over the next one."""
    seen = {address: len(of(watch, address)) for address in addresses}
    peer.refuses = dict.fromkeys(addresses, condition)
    peer.drop()
    async with asyncio.timeout(20):
        while any(len(of(watch, address)) < seen[address] + 2 for address in addresses):
            await watch.until(LinkRetrying, count=len(watch.of(LinkRetrying)) + 1)


def of(watch: Watch, address: str) -> list[LinkRetrying]:
    return [event for event in watch.of(LinkRetrying) if event.address == address]


@dataclass(frozen=True)
class Following:
    """Gives events to a watch at once: in virtual time no other thread may take part."""

    watch: Watch

    def put(self, event: Event) -> None:
        self.watch._append(event)

    def end(self) -> None:
        """Do nothing: no event is queued."""


def follow(connection: aio.Connection, watch: Watch) -> None:
    connection.factory._core._events.subscribe(Following(watch), connection._core.number)


# -- after a loss -----------------------------------------------------------------------------


@conditions
async def test_a_sender_that_is_refused_for_a_while_keeps_its_messages_in_order(
    api: API, condition: Condition
) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        sender, other = await connection.create_sender("q"), await connection.create_sender("other")
        assert (await sender.send(Message(body=0))).accepted
        peer.outcome = None
        futures = [await sender.submit(Message(body=number)) for number in range(1, 4)]
        await peer.until(lambda: len(peer.received) == 4)
        peer.outcome = ACCEPTED
        await refused(watch, peer, condition, "q")
        futures += [await sender.submit(Message(body=number)) for number in range(4, 7)]
        with pytest.raises(SendTimeout, match=rf"for now the primary .* \({condition.name}") as caught:
            await sender.send(Message(body="too late"), timeout=0.01)
        assert caught.value.delivered is False
        assert (await other.send(Message(body="beside"), timeout=10)).accepted
        assert connection.state is State.CONNECTED
        assert sender.unsettled == 6
        peer.refuses.clear()
        outcomes = await asyncio.wait_for(asyncio.gather(*futures), 10)
        assert all(outcome.accepted for outcome in outcomes)
        assert [body for body in peer.bodies if body != "beside"] == list(range(7))
        assert peer.copies == 3
        assert len(watch.of(Disconnected)) == 1
        event, *_ = of(watch, "q")
        assert (event.condition, event.reason) == (condition.name, condition.description)
        assert [each.refusals for each in of(watch, "q")] == list(range(1, len(of(watch, "q")) + 1))
        await connection.close()


@conditions
async def test_a_receiver_that_is_refused_for_a_while_receives_each_message_once(
    api: API, condition: Condition
) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receiver = await connection.create_receiver("q", credit=3)
        peer.put("q", *range(6))
        held = await receiver.receive(timeout=10)
        await peer.until(lambda: peer.unsettled == 3)
        await refused(watch, peer, condition, "q")
        assert not receiver._core.inbox
        with pytest.raises(StaleDelivery):
            await held.accept()
        receiving = asyncio.ensure_future(receiver.receive(timeout=10))
        peer.refuses.clear()
        bodies = []
        for number in range(6):
            delivery = await (receiving if number == 0 else receiver.receive(timeout=10))
            bodies.append(delivery.message.body)
            await delivery.accept()
        assert bodies == list(range(6))
        await peer.until(lambda: len(peer.outcomes) == 6)
        assert not peer.queues["q"]
        assert max(peer.credit) == 3
        await connection.close()


@pytest.mark.parametrize("condition", FINAL, ids=name_of)
async def test_the_other_refusals_are_final(api: API, condition: Condition) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("q")
        receiving = asyncio.ensure_future(receiver.receive())
        peer.refuses["q"] = condition
        peer.drop()
        for waiting in (receiving, sender.send(Message())):
            with pytest.raises(LinkClosed, match="for good") as caught:
                await asyncio.wait_for(waiting, 10)
            assert caught.value.condition == condition.name
        assert watch.of(LinkRetrying) == []
        assert len(attaches(peer, "q")) == 4
        assert connection.state is State.CONNECTED
        await connection.close()


async def test_a_link_that_was_not_lost_is_closed_by_a_detach(api: API) -> None:
    """Only links interrupted by a loss are attached again; any other detach is the peer's decision."""
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receiver = await connection.create_receiver("q")
        peer.detach(LOCKED)
        with pytest.raises(LinkClosed, match="resource-locked"):
            await receiver.receive(timeout=10)
        assert watch.of(LinkRetrying) == []
        await connection.close()


async def test_without_a_reattach_timeout_every_refusal_is_final(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer, reattach_timeout=0, **FAST))
        receiver = await connection.create_receiver("q")
        peer.refuses["q"] = LOCKED
        peer.drop()
        with pytest.raises(LinkClosed, match="resource-locked"):
            await receiver.receive(timeout=10)
        await connection.close()


@pytest.mark.parametrize(
    ("condition", "options", "seconds"),
    [(LOCKED, {}, 120.0), (NOT_FOUND, {}, 30.0), (LOCKED, {"reattach_timeout": 7}, 7.0)],
    ids=["locked", "not found", "by the option"],
)
def test_a_refusal_that_does_not_end_is_final_in_the_end(
    haclient_virtual_time: VirtualTime, condition: Condition, options: dict[str, float], seconds: float
) -> None:
    haclient_virtual_time.settle = 0.02

    async def main() -> None:
        watch = Watch()
        async with primary() as peer, aio.connect(url(peer, **options)) as connection:
            follow(connection, watch)
            gone, kept = await connection.create_receiver("gone"), await connection.create_sender("kept")
            peer.refuses["gone"] = condition
            peer.drop()
            (reconnected,) = await watch.until(Reconnected)
            with pytest.raises(LinkClosed, match=r"refused \d+ times") as caught:
                await gone.receive()
            elapsed = asyncio.get_running_loop().time() - reconnected.stamp.monotonic
            assert elapsed == pytest.approx(seconds, abs=0.5)
            assert caught.value.condition == condition.name
            assert connection.state is State.CONNECTED
            assert (await kept.send(Message())).accepted
            times = attaches(peer, "gone")[1:]
            pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert 5 < len(pauses) < 100
            assert max(pauses) < 10.5
            assert len({round(pause, 3) for pause in pauses}) > len(pauses) / 2, "no jitter"
            delays = [event.delay for event in of(watch, "gone")]
            assert delays[0] < 0.11
            assert max(delays) > 0.5
            assert len(delays) == len(times) - 1

    haclient_virtual_time.run(main())


def test_the_time_begins_with_the_new_session_and_not_with_the_loss(
    haclient_virtual_time: VirtualTime,
) -> None:
    haclient_virtual_time.settle = 0.02

    async def main() -> None:
        watch = Watch()
        async with primary() as peer, aio.connect(url(peer)) as connection:
            follow(connection, watch)
            receiver = await connection.create_receiver("q")
            peer.begin_after = 9.0
            peer.refuses["q"] = LOCKED
            for count in range(1, 9):  # an outage of some minutes, in which the link is refused at times
                peer.drop()
                await watch.until(Reconnected, count=count, timeout=1000)
                await asyncio.sleep(20)
            peer.refuses.clear()
            peer.put("q", "one")
            assert (await receiver.receive(timeout=60)).message.body == "one"

    haclient_virtual_time.run(main())


async def test_a_loss_ends_the_wait_and_the_next_session_attaches_at_once(api: API) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receiver = await connection.create_receiver("q")
        for count in range(1, 4):
            await refused(watch, peer, LOCKED, "q")
            assert len(watch.of(Disconnected)) == count
        peer.refuses.clear()
        peer.drop()
        peer.put("q", "one")
        assert (await receiver.receive(timeout=10)).message.body == "one"
        await connection.close()


async def test_a_link_is_not_attached_again_before_its_detach_is_written() -> None:
    """Proton sends an Attach before a Detach that was made earlier, which the peer takes for an error."""
    watch = Watch()
    async with primary() as peer, aio.connect(url(peer, **FAST), on_event=watch) as connection:
        receiver = await connection.create_receiver("q")
        await refused(watch, peer, LOCKED, "q")
        engine = connection._core._engine
        assert engine is not None
        engine.pause_writing()
        assert not connection._core.links._attach_again(receiver._core)
        peer.refuses.clear()
        engine.resume_writing()
        peer.put("q", "one")
        assert (await receiver.receive(timeout=10)).message.body == "one"
        assert len(watch.of(Disconnected)) == 1


async def test_two_links_wait_each_for_itself(api: API) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receivers = [await connection.create_receiver(name) for name in ("a", "b")]
        await refused(watch, peer, LOCKED, "a", "b")
        del peer.refuses["a"]
        peer.put("a", "to a")
        assert (await receivers[0].receive(timeout=10)).message.body == "to a"
        seen = len(of(watch, "b"))
        await watch.until(LinkRetrying, count=len(watch.of(LinkRetrying)) + 1)
        assert len(of(watch, "b")) > seen
        del peer.refuses["b"]
        peer.put("b", "to b")
        assert (await receivers[1].receive(timeout=10)).message.body == "to b"
        await connection.close()


@pytest.mark.parametrize("how", ["link", "connection"])
async def test_a_link_that_is_closed_while_it_waits_is_not_attached_again(api: API, how: str) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        other = await connection.create_sender("other")
        sender = await connection.create_sender("q", name="mine")
        await refused(watch, peer, LOCKED, "q")
        future = await sender.submit(Message())
        await (sender if how == "link" else connection).close()
        with pytest.raises(LinkClosed if how == "link" else ConnectionClosed) as caught:
            await asyncio.wait_for(future, 10)
        assert caught.value.delivered is False
        if how == "link":
            await other.send(Message(), timeout=10)
            count = len(attaches(peer, "q"))
            peer.refuses.clear()
            sender = await connection.create_sender("q", name="mine")
            assert (await sender.send(Message(), timeout=10)).accepted
            assert len(attaches(peer, "q")) == count + 1
        await connection.close()


async def test_at_most_once_sends_what_was_never_sent_and_reports_the_rest_as_unknown(api: API) -> None:
    watch = Watch()
    async with primary(outcome=None) as peer:
        connection = await api.connect(url(peer, delivery="at-most-once", **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        lost = await sender.submit(Message(body="lost"))
        await peer.until(lambda: peer.received)
        peer.outcome = ACCEPTED
        await refused(watch, peer, LOCKED, "q")
        with pytest.raises(DeliveryUnknown):
            await asyncio.wait_for(lost, 10)
        futures = [await sender.submit(Message(body=number)) for number in range(3)]
        peer.refuses.clear()
        assert all(outcome.accepted for outcome in await asyncio.wait_for(asyncio.gather(*futures), 10))
        assert peer.bodies == ["lost", 0, 1, 2]
        assert peer.copies == 0
        await connection.close()


async def test_every_sink_takes_the_event(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    with caplog.at_level(logging.INFO, logger="haclient"):
        async with primary() as peer:
            connection = await aio.connect(url(peer, **FAST), on_event=watch)
            await connection.create_receiver("q", name="mine")
            await refused(watch, peer, LOCKED, "q")
            await connection.close()
    event, *_ = of(watch, "q")
    assert line_of(event).endswith(
        "link-retrying    mine to q, refused with amqp:resource-locked: another connection holds it, "
        f"again in {event.delay:.3f} s"
    )
    assert json_of(event)["condition"] == "amqp:resource-locked"
    lines = [each.message for each in caplog.records if "refuses the link" in each.message]
    assert "mine to 'q' (amqp:resource-locked: another connection holds it), attached again" in lines[0]
    assert [each for each in caplog.records if each.levelno > logging.WARNING] == []
    assert set(get_args(Event)) == set(record._MAKERS)


# -- the first attach -------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [*PATIENT[1:5], *FINAL], ids=name_of)
@pytest.mark.parametrize("create", ["create_sender", "create_receiver"])
async def test_a_first_attach_that_is_refused_is_final(create: str, condition: Condition) -> None:
    watch = Watch()
    async with primary(refuses={"q": condition}) as peer:
        async with aio.connect(url(peer, **FAST), on_event=watch) as connection:
            with pytest.raises(LinkRefused, match=condition.name) as caught:
                await getattr(connection, create)("q")
            assert caught.value.condition == condition.name
        assert len(attaches(peer, "q")) == 1
    assert watch.of(LinkRetrying) == []


@pytest.mark.parametrize("condition", [LOCKED, PATIENT[5]], ids=name_of)
@pytest.mark.parametrize("create", ["create_sender", "create_receiver"])
async def test_a_first_attach_waits_for_whoever_holds_the_link(
    api: API, create: str, condition: Condition
) -> None:
    watch = Watch()
    async with primary(refuses={"q": condition}) as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        creating = asyncio.ensure_future(getattr(connection, create)("q"))
        await watch.until(LinkRetrying, count=3)
        assert not creating.done()
        peer.refuses.clear()
        await asyncio.wait_for(creating, 10)
        await connection.close()


@pytest.mark.parametrize("create", ["create_sender", "create_receiver"])
async def test_a_first_attach_that_is_refused_all_its_time_says_why(api: API, create: str) -> None:
    async with primary(refuses={"q": LOCKED}) as peer:
        connection = await api.connect(url(peer, **FAST))
        with pytest.raises(LinkRefused, match=r"another connection holds it\), refused \d+ times") as caught:
            await getattr(connection, create)("q", timeout=0.2)
        assert caught.value.condition == "amqp:resource-locked"
        assert len(attaches(peer, "q")) > 1
        assert not connection._core.links._reattachment._waits
        peer.refuses.clear()
        await getattr(connection, create)("q")
        await connection.close()


def test_a_first_attach_is_tried_again_up_to_the_timeout_of_the_call(
    haclient_virtual_time: VirtualTime,
) -> None:
    haclient_virtual_time.settle = 0.02

    async def main() -> None:
        async with primary(refuses={"q": LOCKED}) as peer, aio.connect(url(peer)) as connection:
            began = asyncio.get_running_loop().time()
            with pytest.raises(LinkRefused):
                await connection.create_sender("q", timeout=300)
            assert asyncio.get_running_loop().time() - began == pytest.approx(300, abs=0.1)
            assert max(attaches(peer, "q")) > began + 289

    haclient_virtual_time.run(main())


async def test_a_first_attach_that_is_cancelled_is_not_repeated() -> None:
    watch = Watch()
    async with (
        primary(refuses={"q": LOCKED}) as peer,
        aio.connect(url(peer, **FAST), on_event=watch) as connection,
    ):
        creating = asyncio.ensure_future(connection.create_sender("q", name="mine"))
        await watch.until(LinkRetrying)
        creating.cancel()
        await asyncio.wait([creating])
        count = len(attaches(peer, "q"))
        peer.refuses.clear()
        await connection.create_sender("q", name="mine")
        assert len(attaches(peer, "q")) == count + 1


# -- by an End --------------------------------------------------------------------------------


async def test_a_refusal_by_end_takes_the_other_links_down_once_at_most(api: API) -> None:
    """RabbitMQ refuses so.  From then on the link has its own session."""
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        sender, other = await connection.create_sender("q"), await connection.create_sender("other")
        receiver = await connection.create_receiver("other")
        assert (await sender.send(Message(body="first"))).accepted
        peer.refuses_by = "end"
        await refused(watch, peer, NOT_FOUND, "q")
        lost = len(watch.of(Disconnected))
        assert lost <= 2
        future = await sender.submit(Message(body="waits"))
        for number in range(5):
            assert (await other.send(Message(body=number), timeout=10)).accepted
            await watch.until(LinkRetrying, count=len(watch.of(LinkRetrying)) + 1)
        peer.put("other", "received")
        delivery = await receiver.receive(timeout=10)
        await delivery.accept()
        peer.refuses.clear()
        assert (await asyncio.wait_for(future, 10)).accepted
        assert len(watch.of(Disconnected)) == lost
        assert [body for body in peer.bodies if not isinstance(body, int)] == ["first", "waits"]
        peer.drop()  # and over the next connection too
        assert (await sender.send(Message(body="last"), timeout=10)).accepted
        assert peer.copies == 0
        await sender.close()
        assert (await other.send(Message(body="kept"), timeout=10)).accepted
        await connection.close()


async def test_a_flow_for_a_link_that_is_still_being_stolen_is_no_end_of_the_link(api: API) -> None:
    """Broker-J answers so while the former connection still has the links: it does not know their handles
    yet.

    The condition names no link, so another link than the stolen one may be blamed.
    """
    watch = Watch()
    condition = Condition("amqp:session:unattached-handle", "Received Flow with unknown handle 1")
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        sender, receiver = await connection.create_sender("q"), await connection.create_receiver("other")
        peer.refuses_by = "end"
        await refused(watch, peer, condition, "q")
        peer.refuses.clear()
        assert (await sender.send(Message(body="sent"), timeout=10)).accepted
        peer.put("other", "received")
        await (await receiver.receive(timeout=10)).accept()
        await connection.close()


async def test_a_refusal_by_end_that_lasts_fails_that_link_alone(api: API) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, reattach_timeout=0.2, **FAST), on_event=watch)
        receiver, other = await connection.create_receiver("q"), await connection.create_sender("other")
        peer.refuses_by = "end"
        peer.refuses["q"] = LOCKED
        peer.drop()
        with pytest.raises(LinkClosed, match="resource-locked"):
            await receiver.receive(timeout=10)
        assert (await other.send(Message(), timeout=10)).accepted
        assert len(watch.of(Disconnected)) <= 2
        await connection.close()


async def test_a_peer_that_takes_one_session_only_is_not_asked_again(api: API) -> None:
    """Each further attempt would end the session of the other links."""
    watch = Watch()
    async with primary(channel_max=0) as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receiver, other = await connection.create_receiver("q"), await connection.create_sender("other")
        peer.refuses_by = "end"
        peer.refuses["q"] = LOCKED
        peer.drop()
        with pytest.raises(LinkClosed, match="another connection holds it"):
            await receiver.receive(timeout=10)
        assert (await other.send(Message(), timeout=10)).accepted
        assert len(watch.of(Disconnected)) <= 2
        await connection.close()


async def test_the_end_of_a_session_apart_is_a_loss_for_its_link(api: API) -> None:
    watch = Watch()
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        receiver, other = await connection.create_receiver("q"), await connection.create_sender("other")
        peer.refuses_by = "end"
        await refused(watch, peer, LOCKED, "q")
        peer.refuses.clear()
        peer.put("q", "one")
        assert (await receiver.receive(timeout=10)).message.body == "one"
        lost, tried = len(watch.of(Disconnected)), len(watch.of(LinkRetrying))
        for condition in (None, Condition("amqp:internal-error", "a queue moved")):
            peer.end_session("q", condition)
            tried += 1
            await watch.until(LinkRetrying, count=tried)
            assert (await receiver.receive(timeout=10)).message.body == "one"
        assert (await other.send(Message(), timeout=10)).accepted
        assert len(watch.of(Disconnected)) == lost
        await connection.close()


# -- redirects --------------------------------------------------------------------------------


def redirect(**info: Any) -> Condition:
    fields = {symbol(key.replace("_", "-")): value for key, value in info.items()}
    return Condition("amqp:link:redirect", "elsewhere", fields)


@pytest.mark.parametrize("names_host", [True, False])
@pytest.mark.parametrize("when", ["first", "again"])
async def test_a_redirect_to_the_same_peer_is_followed(api: API, when: str, *, names_host: bool) -> None:
    watch = Watch()
    async with primary() as peer:
        where = {"network_host": peer.host, "port": peer.port} if names_host else {}
        refusal = redirect(address="there", **where)
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        if when == "first":
            peer.refuses["here"] = refusal
        sender, receiver = await connection.create_sender("here"), await connection.create_receiver("here")
        if when == "again":
            peer.refuses["here"] = refusal
            peer.drop()
        assert (await sender.send(Message(body="sent"), timeout=10)).accepted
        peer.put("there", "received")
        assert (await receiver.receive(timeout=10)).message.body == "received"
        assert len(attaches(peer, "there")) == 2
        assert (sender.address, receiver.address) == ("here", "here")
        events = of(watch, "there")
        assert [(event.condition, event.delay) for event in events] == [("amqp:link:redirect", 0.0)] * 2
        peer.refuses.clear()
        peer.drop()  # the next primary is asked for the node itself
        assert (await sender.send(Message(body="sent"), timeout=10)).accepted
        assert len(attaches(peer, "there")) == 2
        await connection.close()


async def test_redirects_are_followed_max_redirects_times(api: API) -> None:
    async with primary() as peer:
        peer.refuses = {"a": redirect(address="b"), "b": redirect(address="a")}
        connection = await api.connect(url(peer, max_redirects=3, **FAST))
        with pytest.raises(LinkRefused, match="more than 3 times") as caught:
            await connection.create_sender("a")
        assert caught.value.redirect_address == "a"
        assert [node for node, _ in peer.attaches] == ["a", "b", "a", "b"]
        assert connection.state is State.CONNECTED
        await connection.close()


@pytest.mark.parametrize("when", ["first", "again"])
@pytest.mark.parametrize(
    ("info", "host", "port", "address"),
    [
        ({"network_host": "other.example", "port": 5673, "address": "x"}, "other.example", 5673, "x"),
        ({"hostname": "other.example", "address": "x"}, "other.example", None, "x"),
        ({"port": 1, "address": "x"}, None, 1, "x"),
        ({"network_host": "other.example"}, "other.example", None, None),
        ({}, None, None, None),
    ],
)
async def test_a_redirect_to_another_peer_is_refused_with_the_target(
    when: str, info: dict[str, Any], host: str | None, port: int | None, address: str | None
) -> None:
    watch = Watch()
    async with primary() as peer, aio.connect(url(peer, **FAST), on_event=watch) as connection:
        if when == "first":
            peer.refuses["q"] = redirect(**info)
            with pytest.raises(LinkRefused) as caught:
                await connection.create_receiver("q")
        else:
            receiver = await connection.create_receiver("q")
            peer.refuses["q"] = redirect(**info)
            peer.drop()
            with pytest.raises(LinkRefused) as caught:
                await receiver.receive(timeout=10)
        error = caught.value
        assert error.condition == "amqp:link:redirect"
        assert error.redirect is not None
        assert (error.redirect.host, error.redirect.port) == (host or peer.host, port or peer.port)
        assert error.redirect_address == address
        assert watch.of(LinkRetrying) == []
        assert connection.state is State.CONNECTED


@pytest.mark.parametrize(
    "info",
    [
        {"network_host": ["a", "list"], "address": "x"},
        {"port": "a text", "address": "x"},
        {"port": -1, "address": "x"},
        {"address": ["a", "list"]},
        {"address": ""},
    ],
)
async def test_a_redirect_that_names_nothing_usable_is_a_refusal(info: dict[str, Any]) -> None:
    async with primary(refuses={"q": redirect(**info)}) as peer, aio.connect(url(peer)) as connection:
        with pytest.raises(LinkRefused):
            await connection.create_receiver("q")
        assert connection.state is State.CONNECTED


# -- links that end their connection ----------------------------------------------------------


async def test_an_attach_larger_than_the_frames_of_the_peer_is_not_sent(api: API) -> None:
    watch = Watch()
    async with primary(max_frame_size=1024) as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        for create in (connection.create_sender, connection.create_receiver):
            with pytest.raises(LinkRefused, match="1024 at most") as caught:
                await create("q" * 2000)
            assert caught.value.condition == "amqp:frame-size-too-small"
        assert (await sender.send(Message())).accepted
        assert watch.of(Disconnected) == []
        assert len(connection._core.links.all) == 1
        await connection.close()


async def test_an_attach_that_is_too_large_for_the_next_primary_fails_alone(api: API) -> None:
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST))
        large, small = await connection.create_receiver("q" * 2000), await connection.create_sender("q")
        peer.max_frame_size = 1024
        peer.drop()
        with pytest.raises(LinkClosed, match="1024 at most") as caught:
            await large.receive(timeout=10)
        assert caught.value.condition == "amqp:frame-size-too-small"
        assert (await small.send(Message(), timeout=10)).accepted
        await connection.close()


async def test_every_size_around_the_limit_is_sent_or_refused_and_ends_no_connection() -> None:
    watch = Watch()
    sizes = []

    def configure(receiver: proton.Receiver) -> None:
        receiver.source.filter.put_dict({symbol("selector"): "x" * 700})
        receiver.properties = {symbol("p"): "y" * 100}

    async with primary(max_frame_size=1024) as peer, aio.connect(url(peer), on_event=watch) as connection:
        for size in range(60, 160):
            try:
                receiver = await connection.create_receiver(
                    "q" * size, name=f"{size:03}", configure=configure
                )
            except LinkRefused:
                continue
            sizes.append(size)
            await receiver.close()
        assert sizes == list(range(60, max(sizes) + 1))
        assert 60 < max(sizes) < 159
        assert watch.of(Disconnected) == []


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("when", ["first", "again"])
async def test_a_link_that_ends_its_connection_again_and_again_fails_alone(
    api: API, when: str, others: int
) -> None:
    watch = Watch()
    reason = Condition("amqp:decode-error", "what is this?")
    async with primary() as peer:
        connection = await api.connect(url(peer, **FAST), on_event=watch)
        senders = [await connection.create_sender(f"other-{number}") for number in range(others)]
        if when == "first":
            creating = asyncio.ensure_future(connection.create_receiver("bad"))
            peer.refuses_by, peer.refuses = "close", {"bad": reason}
        else:
            receiver = await connection.create_receiver("bad")
            peer.refuses_by, peer.refuses = "close", {"bad": reason}
            peer.drop()
            creating = asyncio.ensure_future(receiver.receive())
        with pytest.raises(LinkRefused if when == "first" else LinkClosed, match="what is this") as caught:
            await asyncio.wait_for(creating, 20)
        assert caught.value.condition == "amqp:decode-error"
        tried = len(attaches(peer, "bad"))
        for sender in senders:
            assert (await sender.send(Message(), timeout=10)).accepted
        await connection.create_sender("new")
        assert connection.state is State.CONNECTED
        assert len(attaches(peer, "bad")) == tried < 12
        await connection.close()


def test_a_broker_that_drops_its_connections_while_it_starts_kills_no_link(
    haclient_virtual_time: VirtualTime,
) -> None:
    haclient_virtual_time.settle = 0.02

    async def main() -> None:
        watch = Watch()
        async with primary() as peer, aio.connect(url(peer)) as connection:
            follow(connection, watch)
            receiver = await connection.create_receiver("q")
            peer.refuses_by, peer.refuses = "drop", {"q": NOT_FOUND}
            peer.drop()
            await watch.until(Disconnected, count=10, timeout=100)
            peer.refuses.clear()
            peer.put("q", "one")
            assert (await receiver.receive(timeout=60)).message.body == "one"
            peer.refuses = {"q": NOT_FOUND}
            peer.drop()
            with pytest.raises(LinkClosed, match="so ended each connection"):
                await receiver.receive(timeout=1000)
            assert len(watch.of(Disconnected)) < 100
            await connection.create_sender("other")

    haclient_virtual_time.run(main())
