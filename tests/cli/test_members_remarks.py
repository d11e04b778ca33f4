"""``haclient members`` on two brokers, on one broker with two ports, and on peers that are no brokers. The
peers are scripted.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import proton
import pytest

from haclient.core.failures import REDIRECT
from haclient.testing.peers.listening import Peer
from haclient.testing.peers.passive import speaking
from tests.cli.command import run
from tests.peers import primary
from tests.peers.unique import Broker

DISPATCH = "qpid-dispatch-router"


async def asked(*peers: Peer, options: str = "", code: int = 0, user: str = "") -> dict[str, Any]:
    """Return the document that ``members --json`` prints for a URL with these peers."""
    url = f"amqp://{user}{','.join(peer.address for peer in peers)}/{options}"
    done = await asyncio.to_thread(run, "members", "--json", "--timeout", "5", url)
    assert done.returncode == code, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def kinds(document: dict[str, Any]) -> list[str]:
    return [remark["kind"] for remark in document["remarks"]]


def endpoints(*peers: Peer) -> list[str]:
    return [f"amqp://{peer.address}" for peer in peers]


async def test_one_broker_has_no_remark() -> None:
    async with Broker("one").listen() as only:
        document = await asked(only)
    assert document["remarks"] == []
    assert document["members"][0]["container"] == "one"


async def test_two_that_serve_with_one_identity_are_a_split_brain() -> None:
    first, second = Broker("pair"), Broker("pair")
    async with first.listen() as one, second.listen() as other:
        document = await asked(one, other)
    (remark,) = document["remarks"]
    assert (remark["kind"], remark["warning"]) == ("several-primaries", True)
    assert remark["endpoints"] == endpoints(one, other)
    assert "one identity (pair)" in remark["text"]
    assert first.taken == second.taken == {}


async def test_one_broker_under_two_ports_is_not_two() -> None:
    broker = Broker("pair")
    async with broker.listen() as one, broker.listen() as other:
        document = await asked(one, other)
    (remark,) = document["remarks"]
    assert (remark["kind"], remark["warning"]) == ("same-broker", False)
    assert remark["endpoints"] == endpoints(one, other)
    assert broker.taken == {}


async def test_three_ports_of_two_brokers_are_told_apart() -> None:
    """Each probe needs its own container id. Otherwise the third port would be taken for the first."""
    old, new = Broker("pair"), Broker("pair")
    async with old.listen() as one, new.listen() as two, new.listen() as three:
        document = await asked(one, two, three)
    assert kinds(document) == ["several-primaries", "same-broker"]
    several, same = document["remarks"]
    assert several["endpoints"] == endpoints(one, two)
    assert same["endpoints"] == endpoints(two, three)


async def test_two_identities_are_two_brokers_without_a_question() -> None:
    first, second = Broker("one"), Broker("other")
    async with first.listen() as one, second.listen() as other:
        document = await asked(one, other)
    assert kinds(document) == ["several-primaries"]
    assert "its own identity" in document["remarks"][0]["text"]
    assert len(first.seen) == len(second.seen) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["offers nothing", "stalls", "refuses otherwise"])
async def test_a_broker_that_does_not_say_it_is_perhaps_the_same(how: str) -> None:
    facts: dict[str, Any] = {
        "offers nothing": {"enforces": False},
        "stalls": {"stalls": True},
        "refuses otherwise": {"refuses_with": proton.Condition("amqp:not-allowed", "no")},
    }[how]
    broker = Broker("pair", **facts)
    async with broker.listen() as one, broker.listen() as other:
        url = f"amqp://{one.address},{other.address}"
        done = await asyncio.to_thread(run, "members", "--json", "--timeout", "1", url)
    document = json.loads(done.stdout)
    assert kinds(document) == ["perhaps-same-broker"]
    assert document["remarks"][0]["warning"]


async def test_an_id_that_names_the_process_needs_no_question() -> None:
    broker = Broker("rabbit@a", "RabbitMQ", enforces=False)
    async with broker.listen() as one, broker.listen() as other:
        document = await asked(one, other)
    assert kinds(document) == ["same-broker"]


async def test_nodes_that_all_serve_are_no_split_brain() -> None:
    async with (
        Broker("rabbit@a", "RabbitMQ").listen() as one,
        Broker("rabbit@b", "RabbitMQ").listen() as other,
    ):
        document = await asked(one, other)
    (remark,) = document["remarks"]
    assert (remark["kind"], remark["warning"]) == ("every-node-serves", False)


async def test_each_of_two_sites_has_a_primary() -> None:
    async with Broker("here").listen() as one, Broker("there").listen() as other:
        document = await asked(one, options=f"?dr={other.address}")
    assert document["remarks"] == []
    assert [member["second_site"] for member in document["members"]] == [False, True]


async def test_a_router_is_named() -> None:
    async with (
        Broker("Router.A", DISPATCH).listen() as one,
        Broker("Router.B", DISPATCH).listen() as other,
    ):
        document = await asked(one, other)
    assert kinds(document) == ["router", "router"]
    assert DISPATCH in document["remarks"][0]["text"]


def redirecting(target: Peer) -> Any:
    """A peer like Artemis's connection router: an Open without a product, then a redirect."""
    info = {proton.symbol("network-host"): target.host, proton.symbol("port"): target.port}

    def redirect(engine: Any) -> None:
        engine.open()
        engine.close(proton.Condition(REDIRECT, "Connection router r redirected this connection", info))

    return speaking(redirect)


async def test_a_connection_router_is_named() -> None:
    async with Broker("one").listen() as broker, redirecting(broker) as router:
        alone = await asked(router)
        both = await asked(router, broker)
    for document, advised in ((alone, True), (both, False)):
        (remark,) = document["remarks"]
        assert (remark["kind"], remark["endpoints"]) == ("router", endpoints(router))
        assert ("Name the brokers behind it" in remark["text"]) is advised


async def test_a_connection_router_that_has_no_target_is_named() -> None:
    def refuse(engine: Any) -> None:
        engine.open()
        engine.close(proton.Condition("amqp:connection:forced", "Connection router r is not ready"))

    async with speaking(refuse) as router:
        document = await asked(router, code=1)
    assert kinds(document) == ["router"]


async def test_targets_that_would_get_the_credentials_are_named_and_not_asked() -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker("one").listen())
        router = await stack.enter_async_context(redirecting(broker))
        foreign = {proton.symbol("network-host"): broker.host, proton.symbol("port"): broker.port}
        announcing = await stack.enter_async_context(primary(properties={"failover-server-list": [foreign]}))
        options = "?sasl_mechanisms=ANONYMOUS&sasl_plaintext=yes"
        document = await asked(router, options=options, user="joe:secret@", code=1)
        assert kinds(document) == ["router", "not-asked"]
        assert document["remarks"][1]["endpoints"] == endpoints(broker)
        document = await asked(announcing, options=options, user="joe:secret@")
        assert kinds(document) == ["not-asked"]
        assert "redirects=any" in document["remarks"][0]["text"]
        assert broker.transports == set()


async def test_people_read_the_warning_below_the_verdict() -> None:
    async with Broker("pair").listen() as one, Broker("pair").listen() as other:
        url = f"amqp://{one.address},{other.address}"
        done = await asyncio.to_thread(run, "members", "--timeout", "5", url)
    *_, verdict, warning = done.stdout.splitlines()
    assert verdict.startswith("primary: ")
    assert warning.startswith("warning: 2 brokers claim to be the primary")
