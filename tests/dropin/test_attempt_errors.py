"""Failed attempts that reach ``on_transport_error``, and failed attempts that do not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from proton import Condition, ConnectionException, Message
from proton.handlers import MessagingHandler

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason, Resolved
from haclient.discovery.topology import Topology, update
from haclient.engine.settings import SaslServer
from haclient.errors import ConnectionNotAllowed
from haclient.events import AttemptFailed, AttemptStarted, BackingOff, Connected, Event, GaveUp, Stamp
from haclient.reactor import Container
from haclient.reactor.attempt_errors import AttemptErrors, url_of
from haclient.testing.peers import deaf
from haclient.testing.peers.deaf import accept_and_drop, silence
from haclient.testing.peers.listening import Peer, listening, loopback_host, url
from haclient.testing.peers.passive import redirecting
from haclient.testing.threads import in_thread
from haclient.utils import BlockingConnection
from tests.dnsmasq import Dnsmasq
from tests.dropin.recorder import FAST, PATIENCE, Recorder, running, sending
from tests.dropin.waiting import on_its_thread, wait_until
from tests.peers.primary import primary

STAMP = Stamp(client_id="c", connection=1, sequence=1, time=0.0, monotonic=0.0, episode=1)
NAME = Endpoint("cluster.test", 5672)
FIRST, SECOND = (
    Endpoint(host, 5672, server_name="cluster.test", origin=Origin.RESOLVED) for host in ("10.0.0.1", "::1")
)
NOT_ALLOWED = Condition("amqp:not-allowed", "one too many")
LITERAL = Endpoint("10.0.0.9", 5672)
NO_ERRORS = frozenset(
    {
        FailureReason.CLOSED,
        FailureReason.REDIRECTED,
        FailureReason.REDIRECT_REFUSED,
        FailureReason.STALE_PRIMARY,
        FailureReason.LOST_RACE,
        FailureReason.STOPPED,
    }
)


class Reports:
    """The errors that were reported, and whether the search has given up."""

    def __init__(self, *found: Endpoint) -> None:
        self.seen: list[tuple[str, str]] = []
        self.given_up = False
        self.dialling = True
        self.topology = update(Topology(seeds=(NAME, LITERAL)), Resolved(NAME, found))
        self.errors = AttemptErrors(
            lambda name, text: self.seen.append((name, text)),
            lambda: self.topology,
            lambda: self.given_up,
            lambda: self.dialling,
        )

    def fail(self, endpoint: Endpoint, kind: FailureReason = FailureReason.REFUSED) -> None:
        failure = Failure(kind=kind, detail="because")
        record = AttemptRecord(number=1, endpoint=endpoint, started=0.0, ended=1.0, failure=failure)
        self.errors.put(AttemptFailed(STAMP, record))


@pytest.mark.parametrize("kind", FailureReason)
def test_what_a_socket_ends_is_an_error_and_what_a_member_says_is_none(kind: FailureReason) -> None:
    """No error has the name at which proton's handlers close the connection."""
    reports = Reports()
    reports.fail(LITERAL, kind)
    assert [text for _, text in reports.seen] == [f"{LITERAL}: because"] * (kind not in NO_ERRORS)
    assert all(name in ("proton.pythonio", "amqp:connection:framing-error") for name, _ in reports.seen)


def test_the_addresses_of_a_name_are_one_attempt() -> None:
    reports = Reports(FIRST, SECOND)
    for count in (1, 2):
        reports.fail(FIRST)
        assert len(reports.seen) == count - 1
        reports.fail(SECOND, FailureReason.TIMED_OUT)
        assert len(reports.seen) == count
    assert reports.seen[-1][1] == "amqp://cluster.test:5672: because"


def test_an_address_that_the_name_has_lost_is_not_waited_for() -> None:
    reports = Reports(FIRST, SECOND)
    reports.fail(FIRST)
    reports.topology = update(reports.topology, Resolved(NAME, (FIRST,)))
    reports.fail(FIRST)
    assert len(reports.seen) == 1
    assert not reports.errors._failed


def test_a_connection_between_them_begins_anew() -> None:
    reports = Reports(FIRST, SECOND)
    reports.fail(FIRST)
    reports.errors.put(Connected(STAMP, SECOND, generation=None, cluster=None, attempts=2, duration=0.0))
    reports.fail(SECOND)
    assert not reports.seen


def test_the_last_attempt_of_a_search_that_gives_up_is_left_to_its_error() -> None:
    reports = Reports()
    reports.fail(LITERAL)
    reports.given_up = True
    reports.fail(LITERAL)
    assert len(reports.seen) == 1
    reports.fail(LITERAL)  # two ended together: one of them is not the last
    assert len(reports.seen) == 2


@pytest.mark.parametrize(
    "goes_on",
    [AttemptStarted(STAMP, 2, LITERAL), BackingOff(STAMP, delay=1.0, base=1.0, retry_after=None, round=1)],
    ids=["attempt", "delay"],
)
def test_an_error_that_may_be_the_last_waits_until_the_search_goes_on_or_gives_up(goes_on: Event) -> None:
    """A name whose lookup is slow may have more addresses; while one is dialled the error is not the last."""
    reports = Reports()
    reports.dialling = False
    reports.fail(LITERAL)
    assert not reports.seen
    reports.errors.put(goes_on)
    assert len(reports.seen) == 1
    reports.errors.put(goes_on)
    reports.fail(LITERAL)
    reports.given_up = True
    reports.errors.put(
        GaveUp(STAMP, reason="no more", last=None, cause="max-attempts", attempts=2, duration=1.0)
    )
    assert len(reports.seen) == 1


def test_the_url_of_a_member_has_the_name_that_the_application_wrote() -> None:
    assert url_of(FIRST) == "amqp://cluster.test:5672"
    assert url_of(LITERAL) == "amqp://10.0.0.9:5672"
    redirected = Endpoint("10.0.0.1", 5672, server_name="other.test", origin=Origin.REDIRECT)
    assert url_of(redirected) == "amqp://10.0.0.1:5672"


async def test_a_name_with_two_addresses_that_fail_is_one_error_a_round(tmp_path: Path) -> None:
    """With DNS, over real sockets."""
    async with accept_and_drop() as one, listening(lambda _: deaf._Dropping(), port=one.port) as other:
        with Dnsmasq(tmp_path) as dns:
            dns.set_hosts({"cluster.test": [one.host, other.host]})
            cluster = Peer("cluster.test", one.port, options={"nameserver": dns.nameserver})
            handler = Recorder(sending(cluster, reconnect=[0, 0.01, 0.01]))
            async with running(handler):
                pass
        assert (len(one.accepted), len(other.accepted)) == (3, 3)
    assert handler.seen.count("transport_error") == 3


async def test_an_attempt_that_another_made_needless_is_no_error() -> None:
    async with primary() as peer, silence(peer) as member:
        handler = Recorder(sending(member, peer), sendable=lambda event: event.connection.close())
        async with running(handler):
            pass
    assert "transport_error" not in handler.seen


async def test_a_member_that_names_the_primary_is_no_error() -> None:
    async with primary() as peer, redirecting(opens=True, with_port=True)(peer) as member:
        handler = Recorder(sending(member, redirects="any"), sendable=lambda event: event.connection.close())
        async with running(handler):
            pass
    assert "transport_error" not in handler.seen


async def test_the_refusal_of_every_member_has_the_condition_that_they_gave() -> None:
    """Only at the first connect."""
    async with primary(refuses_opens=NOT_ALLOWED) as one, primary(refuses_opens=NOT_ALLOWED) as other:
        errors: list[Condition] = []
        handler = Recorder(
            sending(one, other), transport_error=lambda event: errors.append(event.transport.condition)
        )
        async with running(handler):
            pass
    ((name, text),) = [(error.name, error.description) for error in errors]
    assert name == "amqp:not-allowed"
    assert "one too many" in text
    assert handler.seen.count("disconnected") == 1


async def test_the_refusal_that_lasts_after_a_loss_has_its_condition() -> None:
    async with primary() as peer:
        names: list[str] = []
        handler = Recorder(
            sending(peer, refusal_timeout=0.1),
            transport_error=lambda event: names.append(event.transport.condition.name),
        )
        async with running(handler):
            await handler.until("sendable")
            peer.refuses_opens = Condition("amqp:not-found", "no such host")
            peer.drop()
    assert names[-1] == "amqp:not-found"


async def test_an_end_that_no_member_asked_for_has_the_condition_of_a_socket() -> None:
    """The last member's answer was not the reason."""
    async with primary(refuses_opens=Condition("amqp:connection:forced", "not now")) as peer:
        names: list[str] = []
        handler = Recorder(
            sending(peer, max_attempts=2),
            transport_error=lambda event: names.append(event.transport.condition.name),
        )
        async with running(handler):
            pass
    assert names == ["proton.pythonio"]


def test_a_blocking_connection_that_is_not_allowed_raises_so() -> None:
    with (
        in_thread(primary(refuses_opens=NOT_ALLOWED)) as peer,
        pytest.raises(ConnectionException, match="amqp:not-allowed: one too many") as caught,
    ):
        BlockingConnection(url(peer), timeout=PATIENCE, **FAST)
    assert isinstance(caught.value, ConnectionNotAllowed)
    assert caught.value.condition == "amqp:not-allowed"


async def test_a_member_that_refuses_the_credentials_does_not_end_the_connection() -> None:
    """proton's handlers close it at ``amqp:unauthorized-access``; another member accepts the credentials."""
    async with primary() as peer, primary(sasl=SaslServer(mechanisms=("PLAIN",))) as strict:
        handler = Recorder(
            sending(strict, peer, refusal_timeout=PATIENCE),
            transport_error=lambda event: MessagingHandler.on_transport_error(handler, event),
        )
        async with running(handler):
            await handler.until("sendable")
            peer.drop()
            await handler.until("sendable", 2)
            handler.connection.close()
    assert handler.seen.count("transport_error") >= 2


@pytest.mark.slow
def test_an_outage_between_two_calls_fills_no_memory() -> None:
    """No call runs the handlers meanwhile: the attempts of that time are not reported later."""
    with in_thread(primary()) as peer, in_thread(accept_and_drop()) as down:
        connection = BlockingConnection(url(peer, down), timeout=PATIENCE, **FAST)
        queue = connection.container._queue
        _refuse(peer)
        wait_until(lambda: len(down.accepted) > 20)
        assert len(queue) < 5
        peer.refuses_opens = None
        connection.create_sender("orders").send(Message(body="after"))
        connection.close()


def _refuse(peer: Any) -> None:
    peer.refuses_opens = Condition("amqp:connection:forced", "not now")
    on_its_thread(peer, peer.drop)


async def test_a_lookup_that_fails_late_is_no_error() -> None:
    """Another member serves meanwhile."""
    async with primary() as peer, silent_name_server() as nameserver:
        options = {"nameserver": nameserver, "dns_timeout": 0.3}
        late = asyncio.Event()

        def connect(container: Container) -> Any:
            connection = container.connect(f"amqp://{peer.address},nowhere.test", **options, **FAST)
            connection._binding.connector._factory._events.subscribe(Noting(late))
            container.create_sender(connection, "orders")
            return connection

        handler = Recorder(connect)
        async with running(handler):
            await handler.until("sendable")
            async with asyncio.timeout(PATIENCE):
                await late.wait()
            handler.connection.close()
    assert "transport_error" not in handler.seen


class Noting:
    """Records that an attempt has failed (``event_log.Subscription``)."""

    def __init__(self, failed: asyncio.Event) -> None:
        self._failed = failed

    def put(self, event: Any) -> None:
        if isinstance(event, AttemptFailed):
            self._failed.set()

    def end(self) -> None:
        """Do nothing: no events are queued."""


@asynccontextmanager
async def silent_name_server() -> AsyncIterator[str]:
    with socket.socket(type=socket.SOCK_DGRAM) as nameserver:
        nameserver.bind((loopback_host(), 0))
        host, port = nameserver.getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("does", ["stop", "close", "raise"])
def test_what_a_handler_may_do_at_an_error(does: str) -> None:
    """Each action ends the container, as in proton's programs."""

    class Ending(MessagingHandler):
        def on_transport_error(self, event: Any) -> None:
            if does == "stop":
                event.container.stop()
            elif does == "close":
                event.connection.close()
            else:
                raise ZeroDivisionError

    with in_thread(accept_and_drop()) as down:
        container = Container(Ending())
        container.connect(url(down), **FAST)
        with pytest.raises(ZeroDivisionError) if does == "raise" else nullcontext():
            container.run()
