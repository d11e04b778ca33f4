"""The process keeps no string of a peer after its connection: CPython 3.12.1 frees no interned string."""

from __future__ import annotations

import gc
import secrets
import sys
from typing import Any

import pytest
from proton import Message

from haclient import aio
from haclient.engine import peer_fields
from tests.engine.pair import Pair, pair
from tests.peers import primary, url

COUNT = 20


def is_interned(text: str) -> bool:
    copy = "".join(list(text))
    return sys.intern(copy) is not copy


def made_up(count: int) -> dict[str, Any]:
    """Make properties that no other peer has."""
    return {f"name {secrets.token_hex()}": f"value {secrets.token_hex()}" for _ in range(count)}


def texts(properties: Any) -> list[str]:
    return [text for entry in properties.items() for text in entry if isinstance(text, str)]


def read_by(both: Pair) -> tuple[Any, Any]:
    """Return the client's reading of the server's properties, and the server's of the client's."""
    assert both.client.engine is not None
    assert both.server.engine is not None
    return both.client.engine.peer_properties, both.server.engine.peer_properties


async def test_what_a_peer_makes_up_is_not_interned() -> None:
    of_client, of_server = made_up(COUNT), made_up(COUNT)
    async with pair(client={"properties": of_client}, server={"properties": of_server}) as both:
        assert read_by(both) == (of_server, of_client)
        assert not [text for read in read_by(both) for text in texts(read) if is_interned(text)]


async def test_the_names_that_are_known_are_one_string_for_all_connections() -> None:
    sent = {"product": "any", "haclient:generation": 5}
    names: list[set[int]] = []
    for _ in range(2):
        async with pair(client={"properties": sent}, server={"properties": sent}) as both:
            names.append({id(name) for read in read_by(both) for name in read})
    assert names[0] == names[1] == {id(peer_fields._KNOWN[name]) for name in sent}


@pytest.mark.skipif(not hasattr(sys, "getunicodeinternedsize"), reason="CPython 3.12 counts them")
async def test_no_connection_leaves_an_interned_string() -> None:
    async def visit() -> None:
        properties, names = made_up(COUNT), [secrets.token_hex() for _ in range(4)]
        async with primary(properties=properties) as peer, aio.connect(url(peer)) as connection:
            sender = await connection.create_sender(names[0], name=names[1])
            await sender.send(Message(properties={names[2]: names[3]}, annotations={names[2]: names[3]}))
            receiver = await connection.create_receiver(names[1])
            peer.put(names[1], {names[3]: names[2]})
            await (await receiver.receive()).accept()

    for _ in range(3):
        await visit()
    gc.collect()
    before = sys.getunicodeinternedsize()  # type: ignore[attr-defined,unused-ignore]
    for _ in range(COUNT):
        await visit()
    gc.collect()
    assert sys.getunicodeinternedsize() - before < COUNT  # type: ignore[attr-defined,unused-ignore]
