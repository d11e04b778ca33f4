"""An Artemis router that redirects every client: its targets, and the time before it is ready."""

from __future__ import annotations

import asyncio

import proton
import pytest

from haclient import Credentials, Message
from haclient.discovery.evidence import FailureReason
from haclient.errors import ConnectionGaveUp
from haclient.events import AttemptFailed, Reconnected, Redirected
from haclient.testing.peers.passive import redirection
from tests.peers import Peer, primary, url
from tests.peers.apis import API
from tests.peers.watch import Watch

FAST = {"backoff_base": 0.01, "backoff_max": 0.05, "sasl_mechanisms": "ANONYMOUS"}
USER = Credentials(user="app", password="secret")
NOT_READY = proton.Condition("amqp:connection:forced", "Connection router redirect-to-one is not ready")


def to(target: Peer) -> proton.Condition:
    """Make Artemis's condition for a redirect by a router."""
    redirect = redirection(target)
    redirect.description = (
        f"Connection router redirect-to-one redirected this connection to {target.host}:{target.port}"
    )
    return redirect


async def test_a_router_that_is_not_ready_does_not_keep_a_client_from_its_broker(api: API) -> None:
    """The URL has the router alone.  The broker listens again, and the router does not know it yet."""
    watch = Watch()
    async with primary() as broker, primary(refuses_opens=to(broker)) as router:
        connection = await api.connect(url(router, **FAST), on_event=watch)
        sender = await connection.create_sender("q")
        router.refuses_opens = NOT_READY
        broker.drop()
        async with asyncio.timeout(20):
            await sender.send(Message(body="after"))
        (reconnected,) = await watch.until(Reconnected)
        await connection.close()
    assert reconnected.endpoint.port == broker.port
    assert broker.bodies == ["after"]


async def test_a_router_that_is_ready_is_followed_to_another_broker(api: API) -> None:
    """The former broker is alive, and is not dialled."""
    watch = Watch()
    async with primary() as old, primary() as new, primary(refuses_opens=to(old)) as router:
        connection = await api.connect(url(router, **FAST), on_event=watch)
        router.refuses_opens = to(new)
        old.drop()
        (reconnected,) = await watch.until(Reconnected)
        await connection.close()
    assert reconnected.endpoint.port == new.port
    assert len(old.accepted) == 1


async def test_credentials_go_to_another_port_of_the_same_host(api: API) -> None:
    watch = Watch()
    async with primary() as broker, primary(host=broker.host, refuses_opens=to(broker)) as router:
        connection = await api.connect(url(router, **FAST), credentials=USER, on_event=watch)
        assert connection.endpoint.port == broker.port
        await watch.until(Redirected)
        await connection.close()
    assert [each.followed for each in watch.of(Redirected)] == [True]


@pytest.mark.parametrize(
    ("options", "named"),
    [({}, "redirects=any"), ({"redirects": "none"}, "redirects=members or redirects=any")],
    ids=["foreign", "none"],
)
async def test_a_refused_redirect_names_the_option_that_would_allow_it(
    api: API, options: dict[str, str], named: str
) -> None:
    """The events and the error of the search name it."""
    watch = Watch()
    fast = {**FAST, **options, "startup_deadline": 0.3}
    async with primary() as foreign, primary(refuses_opens=to(foreign)) as router:
        with pytest.raises(ConnectionGaveUp) as caught:
            await api.connect(url(router, **fast), credentials=USER, on_event=watch)
    assert foreign.accepted == []
    assert f"{named} allows it" in str(caught.value)
    (failed, *_) = await watch.until(AttemptFailed)
    assert failed.record.failure.kind is FailureReason.REDIRECT_REFUSED
    assert f"{foreign.host}:{foreign.port}" in failed.record.failure.detail
    assert f"{named} allows it" in failed.record.failure.detail
