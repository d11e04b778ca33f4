"""Every text arrives whole or is refused before it is sent, though C ends a text at a NUL; over both APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient import aio
from haclient.error_catalog.arguments import check_text
from haclient.errors import LinkRefused
from haclient.testing.peers.passive import speaking
from tests.peers import primary, url
from tests.peers.apis import API, connected


def is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


@given(st.text(st.characters(), max_size=20) | st.text(st.sampled_from("a\0\ud800\udfff"), max_size=5))
def test_what_is_taken_is_what_proton_reads_back(text: str) -> None:
    connection = proton.Connection()
    if is_whole(text):
        check_text("container", text)
        connection.container = text
        assert connection.container == text
    else:
        with pytest.raises(ValueError, match=r"^container: there is a "):
            check_text("container", text)


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), max_size=6))
@settings(max_examples=20)
def test_every_link_goes_to_its_own_address(addresses: list[str]) -> None:
    async def run() -> None:
        async with primary() as peer, aio.connect(url(peer)) as connection:
            for number, address in enumerate(addresses):
                create = connection.create_sender if number % 2 else connection.create_receiver
                if is_whole(address):
                    await create(address, name=f"{number} {address}")
                else:
                    with pytest.raises(ValueError, match="address: there is a NUL"):
                        await create(address)
            assert [each for each, _ in peer.attaches] == [each for each in addresses if is_whole(each)]

    asyncio.run(run())


NUL_IN_TEXTS: list[tuple[str, Any]] = [
    ("address", lambda connection: connection.create_sender("a\0b")),
    ("address", lambda connection: connection.create_sender("\0nul")),
    ("name", lambda connection: connection.create_sender("a", name="n\0m")),
    ("capabilities", lambda connection: connection.create_sender("a", capabilities=["queue\0"])),
    ("address", lambda connection: connection.create_receiver("a\0b")),
    ("selector", lambda connection: connection.create_receiver("a", selector="a = 'b\0'")),
    ("filters", lambda connection: connection.create_receiver("a", filters={"a\0b": "c"})),
    ("topic", lambda connection: connection.subscribe("a\0b")),
    ("name", lambda connection: connection.subscribe("a", name="b\0c", shared=True)),
    ("name", lambda connection: connection.unsubscribe("b\0c", topic="a")),
    ("topic", lambda connection: connection.unsubscribe("b", topic="a\0b")),
]


async def test_a_nul_leads_to_no_other_queue(api: API) -> None:
    async with primary() as peer, connected(api, peer, call_timeout=5) as connection:
        for argument, call in NUL_IN_TEXTS:
            with pytest.raises(ValueError, match=f"^{argument}: there is a NUL"):
                await call(connection)
        assert peer.attaches == []


@pytest.mark.parametrize("argument", ["user", "password"])
async def test_a_nul_in_credentials_logs_nobody_else_in(api: API, argument: str) -> None:
    given = {"user": "cluster", "password": "secret", argument: "admin\0x"}
    with pytest.raises(ValueError, match=f"the {argument}: there is a NUL") as caught:
        await api.connect("amqp://127.0.0.1:1", **given)
    assert "admin" not in str(caught.value)
    with pytest.raises(ValueError, match=f"the {argument}: there is a NUL"):
        await api.connect("amqp://127.0.0.1:1", credentials=lambda: (given["user"], given["password"]))


async def test_a_redirect_to_an_address_with_a_nul_is_not_followed(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        info = {proton.symbol("address"): "other\0node"}
        peer.refuses["q"] = proton.Condition("amqp:link:redirect", "there", info)
        with pytest.raises(LinkRefused, match="redirected to another peer"):
            await connection.create_sender("q")
        assert [address for address, _ in peer.attaches] == ["q"]


async def test_a_redirect_to_a_host_with_a_nul_leads_nowhere(api: API) -> None:
    info = {proton.symbol("network-host"): "127.0.0.1\0.example", proton.symbol("port"): proton.uint(5672)}
    away = proton.Condition("amqp:connection:redirect", "there", info)

    def close(engine: Any) -> None:
        engine.open()
        engine.close(away)

    async with speaking(close) as passive, primary() as peer:
        connection = await api.connect(url(passive, peer, backoff_base=0.001, redirects="any"))
        assert connection.endpoint.port == peer.port
        await connection.close()
