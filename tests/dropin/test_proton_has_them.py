"""Defects of proton 0.40.0 itself, if they are quick and certain to reproduce.

When one of these fails, proton has mended it: then the row is about the past in
docs/internals/decisions/proton-defects.md.
"""

from __future__ import annotations

from pathlib import Path

from proton import Condition

from haclient.outcome import ACCEPTED
from haclient.testing.peers.deaf import accept_and_drop, unreachable
from haclient.testing.peers.listening import Peer
from haclient.testing.peers.passive import open_and_drop
from tests.dropin.saying_mechanisms import asking
from tests.examples.program import Program
from tests.peers.primary import primary
from tests.telemetry.lines import until


def proton(name: str, *peers: Peer | str) -> Program:
    """Run a program on proton itself."""
    addresses = [peer if isinstance(peer, str) else peer.address for peer in peers]
    return Program(str(Path(__file__).with_name("programs_of_defects")), name, *addresses)


async def test_one_loss_is_reported_twice() -> None:
    async with primary() as peer, proton("Saying", peer) as program:
        await program.line("opened")
        peer.drop()
        await program.line("disconnected")
        await program.line("disconnected")
        await program.line("opened")
        assert len(peer.accepted) == 2


async def test_unsettled_sends_are_lost() -> None:
    async with primary(outcome=None) as peer, proton("Sending", peer) as program:
        await peer.until(lambda: len(peer.received) == 3)
        peer.outcome = ACCEPTED
        peer.drop()
        await program.line("accepted 4")
        assert peer.bodies == [1, 1, 1, 2]


async def test_a_primary_that_moves_on_ends_the_connection() -> None:
    async with primary() as peer, proton("Saying", peer) as program:
        await program.line("opened")
        peer.close(Condition("amqp:connection:redirect", "over there"))
        await program.line("error amqp:connection:redirect")
        await program.end()
        assert len(peer.accepted) == 1


async def test_a_peer_that_opens_and_drops_makes_a_hot_loop() -> None:
    """proton's own delays for fifty connections would add up to minutes."""
    async with open_and_drop() as peer, proton("Saying", peer):
        await until(lambda: len(peer.accepted) >= 50)


async def test_a_network_that_is_unreachable_is_raised() -> None:
    async with primary() as peer, unreachable(peer) as nowhere, proton("Saying", nowhere, peer) as program:
        await program.line("OSError: .*Network is unreachable")


async def test_select_has_a_limit() -> None:
    async with primary() as peer, proton("crowded", peer) as program:
        await program.line("ValueError: filedescriptor out of range")


async def test_credentials_go_to_the_next_address() -> None:
    async with asking() as first, asking() as second:
        async with proton("Saying", f"amqp://ann:secret@{first.address}", second):
            await until(lambda: second.said)
        assert b"secret" in second.said[0]


async def test_a_backoff_is_used_up() -> None:
    async with primary() as peer, proton("Backing", peer) as program:
        for _ in range(3):
            await program.line("opened")
            peer.drop()
        await program.end()
        assert len(peer.accepted) == 3


async def test_a_connection_that_was_closed_is_dialled() -> None:
    async with accept_and_drop() as peer, proton("Closing", peer):
        await until(lambda: len(peer.accepted) == 2)


async def test_credit_outlives_its_connection() -> None:
    async with primary() as peer, proton("Crediting", peer) as program:
        await program.line("sendable")
        peer.drop()
        await program.line("credit 100")


async def test_the_rest_of_a_message_goes_to_the_next_connection() -> None:
    async with primary(outcome=None) as peer, proton("Streaming", peer) as program:
        await program.line("a half")
        peer.drop()
        await peer.until(lambda: peer.received)
        assert peer.received == [(b"0123456789" * 1000)[-len(peer.received[0]) :]]


async def test_blocking_calls_raise_over_a_connection_that_is_back() -> None:
    async with primary() as peer, proton("blocking", peer) as program:
        await program.line("ready")
        peer.drop()
        await program.line("raised ConnectionException")
        assert len(peer.accepted) == 2


async def test_a_process_that_stood_still_longer_than_its_heartbeat_ends() -> None:
    async with primary() as peer, proton("Sleeping", peer) as program:
        await program.line("opened")
        peer.drop()
        await program.line("AttributeError: 'NoneType' object has no attribute")
