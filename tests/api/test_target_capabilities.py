"""The capabilities that a sender asks of its node."""

from __future__ import annotations

from typing import Any

import pytest

from haclient.engine.links import ReceiverLink
from tests.peers import Primary, primary
from tests.peers.apis import API, connected


def asked(peer: Primary) -> list[list[str]]:
    """Return the capabilities of each attached sender."""
    found = []
    for links in peer.engines.values():
        for link in links:
            if isinstance(link, ReceiverLink):
                data = link.endpoint.remote_target.capabilities
                data.rewind()
                value: Any = data.get_object() if data.next() else None
                found.append([] if value is None else [str(each) for each in value.elements])
    return found


async def test_they_are_in_each_attach(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q", capabilities=("queue", "x"))
        assert asked(peer) == [["queue", "x"]]
        peer.drop()
        await sender.send("after a failover")
        assert asked(peer) == [["queue", "x"]]


async def test_by_default_there_are_none(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        await connection.create_sender("q")
        await connection.create_sender("q", capabilities=[])
        assert asked(peer) == [[], []]


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ("queue", TypeError, "capabilities: expected a list of text, not str"),
        ([1], TypeError, "capabilities: expected text, not int"),
        (["é"], ValueError, "capabilities: 'é' is no symbol"),
        ([""], ValueError, "capabilities: '' is no symbol"),
    ],
)
async def test_what_is_no_list_of_symbols_is_refused(
    api: API, wrong: Any, kind: type[Exception], text: str
) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        with pytest.raises(kind, match=text):
            await connection.create_sender("q", capabilities=wrong)
        assert peer.attaches == []
        await connection.create_sender("q", name="free", capabilities=["queue"])
