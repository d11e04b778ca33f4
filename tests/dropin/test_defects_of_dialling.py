"""Defects of proton's reconnect that the drop-in does not have: the search for the next member.

Each test describes proton 0.40.0.  ``test_proton_has_them`` runs proton itself.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from proton import Condition, Message

from haclient.reactor import Backoff, Container
from haclient.testing.peers import deaf, passive
from haclient.testing.peers.deaf import accept_and_drop, unreachable, unresolvable
from haclient.testing.peers.listening import Peer, listening, loopback_host
from tests.dnsmasq import Dnsmasq
from tests.dropin.recorder import FAST, PATIENCE, Recorder, running, sending
from tests.dropin.saying_mechanisms import asking
from tests.peers.primary import primary
from tests.telemetry.lines import lines, until


async def connects(start: Callable[[Container], Any]) -> Recorder:
    """Run a program with these settings until it may send."""
    handler = Recorder(start)
    async with running(handler):
        await handler.until("sendable")
        handler.connection.close()
    return handler


async def test_it_works_beyond_the_file_descriptors_of_select() -> None:
    """proton raises ``ValueError`` out of ``run``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        async with primary() as peer:
            handler = Recorder(sending(peer), sendable=lambda e: e.sender.send(Message(body="one")))
            async with running(handler):
                await handler.until("accepted")
                handler.connection.close()
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_name_that_cannot_be_resolved_is_no_exception() -> None:
    """proton raises ``socket.gaierror`` out of ``run``."""
    async with primary() as peer, unresolvable(peer) as nowhere:
        await connects(sending(nowhere, peer))


async def test_a_peer_that_opens_and_drops_makes_no_hot_loop() -> None:
    """proton restarts its delays at each Open: hundreds of connections a second."""
    async with passive.open_and_drop() as peer:
        handler = Recorder(sending(peer, reconnect=Backoff(initial=0.2, max_delay=0.2)))
        async with running(handler):
            await handler.until("disconnected", 10)
            handler.connection.close()
        # Ten delays of up to 0.2 s, jittered: all of them short is next to impossible.
        assert peer.accepted[9] - peer.accepted[0] > 0.1


async def test_a_redirect_is_followed() -> None:
    """proton takes it for an error, and closes the connection."""
    async with primary() as peer, passive.redirecting(opens=True, with_port=True)(peer) as member:
        handler = await connects(sending(member, redirects="any"))
        assert len(peer.accepted) == 1
        assert "connection_error" not in handler.seen


@pytest.mark.parametrize(
    "name",
    [
        "amqp:connection:forced",
        "amqp:connection:redirect",
        "amqp:resource-limit-exceeded",
        "amqp:internal-error",
        None,
    ],
)
async def test_a_primary_that_sends_close_is_a_loss(name: str | None) -> None:
    """proton takes most Closes for errors, and waits for ever after ``forced``."""
    async with primary() as peer:
        handler = Recorder(sending(peer))
        async with running(handler):
            await handler.until("sendable")
            peer.close(Condition(name, "moving on") if name else None)
            await handler.until("sendable", 2)
            handler.connection.close()
        assert handler.seen.count("disconnected") == 1
        assert not {"connection_error", "transport_error"}.intersection(handler.seen)


async def test_giving_up_is_reported_once_and_ends_the_container() -> None:
    """proton only logs it; no event reports that no further attempt follows."""
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(primary())
        said: list[str] = []
        handler = Recorder(
            sending(peer, reconnect=[0, 0.01]),
            transport_error=lambda event: said.append(event.transport.condition.description),
        )
        async with running(handler):
            await handler.until("sendable")
            await stack.aclose()  # the port has no listener any more
    assert handler.seen.count("disconnected") == 1
    assert handler.seen[-1] == "transport_error"
    assert [text for text in said if "no primary was found" in text] == said[-1:]


@pytest.mark.parametrize("name", ["amqp:connection:forced", "amqp:internal-error", None])
async def test_a_member_that_sends_close_and_keeps_the_socket_is_left(name: str | None) -> None:
    """proton waits for ever after ``forced``: it neither answers the Close nor closes the socket."""
    async with primary() as peer, passive.open_then_close(name)(peer) as member:
        await connects(sending(member, peer))


@pytest.mark.parametrize("silent", [deaf.silence, deaf.syn_drop, deaf.stopped_process])
async def test_a_member_that_says_nothing_does_not_hold_up_the_others(silent: Callable[..., Any]) -> None:
    """proton has no time limit for an attempt: it stays with the first address."""
    async with primary() as peer, silent(peer) as member:
        await connects(sending(member, peer))


async def test_a_network_that_is_unreachable_is_no_exception() -> None:
    """proton raises ``OSError`` out of ``run``."""
    async with primary() as peer, unreachable(peer) as member:
        await connects(sending(member, peer))


async def test_every_address_of_a_name_is_tried(tmp_path: Path) -> None:
    """proton dials the next address only after the one before refused."""
    async with primary() as peer, listening(lambda _: deaf._Deaf(), port=peer.port) as silent:
        with Dnsmasq(tmp_path) as dns:
            dns.set_hosts({"cluster.test": [silent.host, peer.host]})
            cluster = Peer("cluster.test", peer.port, options={"nameserver": dns.nameserver})
            await connects(sending(cluster))


async def test_a_name_server_that_says_nothing_holds_up_nobody_else() -> None:
    """proton resolves it inside its loop, and every connection of the container waits for the answer."""
    async with primary() as peer:
        with socket.socket(type=socket.SOCK_DGRAM) as nameserver:
            nameserver.bind((loopback_host(), 0))
            host, port = nameserver.getsockname()
            without: list[Any] = []

            def connect(container: Container) -> Any:
                options = {"nameserver": f"{host}:{port}", "dns_timeout": 2 * PATIENCE}
                without.append(container.connect("amqp://nowhere.test", **options, **FAST))
                return sending(peer)(container)

            handler = Recorder(connect)
            async with running(handler):
                await handler.until("sendable")
                handler.connection.close()
                without[0].close()


async def test_credentials_go_to_the_address_that_they_were_written_for() -> None:
    """proton reuses the user and the password of one URL for the next one without any."""
    async with asking() as first, asking() as second:

        def connect(container: Container) -> Any:
            return container.connect(urls=[f"amqp://ann:secret@{first.address}", second.address], **FAST)

        handler = Recorder(connect)
        async with running(handler):
            await until(lambda: len(first.said) > 1 and len(second.said) > 1)
            handler.connection.close()
        assert all(b"PLAIN" in said and b"secret" in said for said in first.said)
        assert all(b"ANONYMOUS" in said and b"secret" not in said for said in second.said)


async def test_a_backoff_is_not_used_up() -> None:
    """proton generates its delays once, for all losses and all connections with that backoff."""
    backoff = Backoff(initial=0.01, max_delay=0.01, max_tries=3)
    async with primary() as peer:
        for _ in range(2):
            handler = Recorder(sending(peer, reconnect=backoff))
            async with running(handler):
                for number in range(1, 6):
                    await handler.until("sendable", number)
                    peer.drop()
                await handler.until("sendable", 6)
                handler.connection.close()


async def test_nobody_is_dialled_once_the_connection_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """proton dials when the delay ends, even if the connection was closed meanwhile."""
    caplog.set_level("INFO", "haclient")
    async with accept_and_drop() as peer:
        handler = Recorder(sending(peer, reconnect=[0, 2 * PATIENCE]))
        async with running(handler):
            await until(lambda: "no primary in round 1" in caplog.text)
            before = len(peer.accepted)
            handler.connection.close()
        assert len(peer.accepted) == before


async def test_a_delay_comes_before_a_round_and_not_before_each_address(tmp_path: Path) -> None:
    """proton waits before each address: with a list of ten and 10 s a round takes 100 s."""
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(accept_and_drop()) for _ in range(5)]
    # No member listens any more: all of them refuse.
    most = 3 * len(members)
    handler = Recorder(sending(*members, max_attempts=most, telemetry=str(tmp_path)))
    async with running(handler):
        pass
    await until(lambda: lines(tmp_path, "gave_up"))
    assert len(lines(tmp_path, "attempt")) == most
    assert len(lines(tmp_path, "backoff")) == 2


async def test_delays_are_jittered(tmp_path: Path) -> None:
    """proton's delays are the same for every client, as in ``reconnect=``: all clients return at once."""
    longest = 1.0  # even a busy machine does not let all of it pass before the wait begins
    async with accept_and_drop() as peer:
        given = {"max_attempts": 2, "backoff_base": longest, "backoff_max": longest}

        async def wait(number: int) -> None:
            folder = str(tmp_path / str(number))
            async with running(Recorder(sending(peer, telemetry=folder, **given))):
                pass
            await until(lambda: lines(Path(folder), "gave_up"))

        await asyncio.gather(*(wait(number) for number in range(8)))
    told = [line["data"] for number in range(8) for line in lines(tmp_path / str(number), "backoff")]
    assert len({data["haclient.backoff.delay"] for data in told}) == len(told) == 8
    assert all(data["haclient.backoff.delay"] <= longest for data in told)
