"""A wrong argument raises an error that names it, and the call does nothing; over both APIs.

A wrong type is a ``TypeError`` that names the type, an impossible value a ``ValueError``.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from typing import Any

import pytest

from haclient import aio, blocking
from haclient.errors import HaclientError
from tests.peers import Primary, primary, url
from tests.peers.apis import API, BlockingAPI, connected

NAN = math.nan
# For each argument of every call: values of a wrong type, and impossible ones.
_TIMES = {"timeout": ("5", True, [1], NAN, object())}
_TEXTS = (5, b"text", ["text"], object(), "a\0b", "\0a", "lone \ud800 surrogate")
_FLAGS = ("no", 1, None, 0.0, object())
_WHOLES = ("5", 5.0, True, [5], NAN)
_CAPABILITIES = ("queue", 5, b"queue", [5], ["a\0b"], [""], ["ä"], object())
_FILTERS = {
    "selector": (5, b"a = 1", ["a"], "a = '\0'", " "),
    "filters": (["a"], "a", 5, {5: "a"}, {"a\0b": "x"}, {"a": object()}, {"a": None}),
    "capabilities": _CAPABILITIES,
    "strict": _FLAGS,
}
_LINK = {"configure": (5, "no"), **_TIMES}
_SENDS = {"durable": ("no", 1, 0, object()), "duplicate_id": (5, 1.5, ["id"])}

CONNECTS: dict[str, tuple[object, ...]] = {
    "user": (5, b"guest", "a\0b", "\ud800"),
    "credentials": (5, "guest", ("guest",), ("guest", 5), ("guest", b"guest"), ("a\0b", "p"), ("u", "p\0q")),
    "ssl_context": (5, "context", True),
    "desired_capabilities": _CAPABILITIES,
    "on_event": (5, "print", [5]),
    "telemetry": (5, True, ["directory"], "a\0b"),
    "vhost": ("a\0b", object(), ""),
    "client_id": ("a\0b", object()),
    "heartbeat": ("soon", object(), NAN, -1),
    "window": ("many", 0, 1.5, NAN, object()),
}
SENDER: dict[str, tuple[object, ...]] = {
    "address": (*_TEXTS, ""),
    "name": _TEXTS,
    "durable": _FLAGS,
    "capabilities": _CAPABILITIES,
    "on_encode": (5, "no"),
    **_LINK,
}
RECEIVER: dict[str, tuple[object, ...]] = {
    "address": _TEXTS,
    "credit": (*_WHOLES, -1, 2**31),
    "name": _TEXTS,
    "dynamic": (*_FLAGS, True),  # together with an address
    "browse": _FLAGS,
    "confirm": _FLAGS,
    **_FILTERS,
    **_LINK,
}
SUBSCRIBE: dict[str, tuple[object, ...]] = {
    "topic": _TEXTS,
    "name": (*_TEXTS, ""),
    "durable": _FLAGS,
    "shared": _FLAGS,
    "credit": (*_WHOLES, -1),
    "confirm": _FLAGS,
    **_FILTERS,
    **_LINK,
}
CALLS_OF_SENDERS: dict[str, dict[str, tuple[object, ...]]] = {
    "send": {**_SENDS, **_TIMES},
    "submit": {**_SENDS, **_TIMES},
    "submit_nowait": _SENDS,
    "send_many": {"messages": (5, None, "text", b"bytes", {}), "durable": ("no", 1), **_TIMES},
    "flush": _TIMES,
}
CALLS_OF_RECEIVERS: dict[str, dict[str, tuple[object, ...]]] = {
    "receive": _TIMES,
    "receive_many": {"max_count": (*_WHOLES, 0), "min_count": (*_WHOLES, 0, 3), **_TIMES},
    "accept_many": {"deliveries": (5, None, [5], ["text"], "text"), "confirm": _FLAGS, **_TIMES},
    "add_credit": {"count": (*_WHOLES, 0, -1, 2**31)},
    "drain": _TIMES,
}
CALLS_OF_DELIVERIES: dict[str, dict[str, tuple[object, ...]]] = {
    "accept": {"confirm": _FLAGS, **_TIMES},
    "reject": {"condition": (5, b"app:bad", "a\0b"), "description": (5, b"text", "a\0b")},
    "modify": {"delivery_failed": _FLAGS, "undeliverable_here": _FLAGS},
    "processing": {"on_error": (5, None, ["reject"], "accept", "Reject", ""), **_TIMES},
}
UNSUBSCRIBE: dict[str, tuple[object, ...]] = {"name": (*_TEXTS, ""), "topic": _TEXTS, **_TIMES}
# Calls without arguments that could be wrong, and parts of other calls.
_WITHOUT = {"close", "detach", "events", "release"}


def check(error: BaseException, argument: str, value: object) -> None:
    """Assert that the error names the argument, and for a wrong type the type."""
    assert isinstance(error, TypeError | ValueError), f"{argument}={value!r}: {error!r}"
    assert not isinstance(error, UnicodeError), f"{argument}={value!r}: {error!r}"
    text = str(error)
    assert argument in text, f"{argument}={value!r}: {text}"
    if isinstance(error, TypeError) and argument != "filters":
        several = value if isinstance(value, list | tuple) else ()
        types = {"None" if each is None else type(each).__name__ for each in (value, *several)}
        assert any(each in text for each in types), f"{argument}={value!r}: {text}"


async def refused(call: Any, argument: str, value: object, **arguments: Any) -> None:
    """Assert that the call refuses this value."""
    try:
        async with asyncio.timeout(10):
            result = await call(**{**arguments, argument: value})
    except HaclientError as error:
        check(error, argument, value)
    except (TypeError, ValueError) as error:
        check(error, argument, value)
    else:
        pytest.fail(f"{argument}={value!r} was taken: {result!r}")


def methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_the_table_has_every_argument_of_every_call() -> None:
    tables: list[tuple[type, dict[str, dict[str, tuple[object, ...]]]]] = []
    for module in (aio, blocking):
        of_connections = {
            "create_sender": SENDER,
            "create_receiver": RECEIVER,
            "subscribe": SUBSCRIBE,
            "unsubscribe": UNSUBSCRIBE,
        }
        tables += [
            (module.Connection, of_connections),
            (module.Sender, CALLS_OF_SENDERS),
            (module.Receiver, CALLS_OF_RECEIVERS),
            (module.Delivery, CALLS_OF_DELIVERIES),
        ]
    for kind, calls in tables:
        assert methods(kind) - _WITHOUT == calls.keys()
        for name, arguments in calls.items():
            wanted = set(inspect.signature(getattr(kind, name)).parameters) - {"self", "message"}
            assert wanted == arguments.keys(), name


@pytest.mark.parametrize("argument", CONNECTS)
async def test_wrong_arguments_of_connect(api: API, argument: str) -> None:
    for value in CONNECTS[argument]:
        others = {"password": "secret"} if argument == "user" else {}
        for make in (api.connect, api.factory):
            await refused(lambda **given: make("amqp://127.0.0.1:1", **given), argument, value, **others)  # noqa: B023


async def test_wrong_urls_and_times_of_connect(api: API) -> None:
    for wrong in (5, None, b"amqp://h", ["amqp://h", 5], object()):
        await refused(api.connect, "url", wrong)
    async with primary() as peer:
        factory = await api.factory(url(peer))
        for value in _TIMES["timeout"]:
            await refused(factory.connect, "timeout", value)
            await refused(lambda timeout: api.connect(url(peer), timeout=timeout), "timeout", value)
        await factory.close()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (call, argument)
        for call, table in (
            ("create_sender", SENDER),
            ("create_receiver", RECEIVER),
            ("subscribe", SUBSCRIBE),
        )
        for argument in table
    ],
)
async def test_wrong_arguments_of_links(api: API, call: str, argument: str) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        named = {"topic" if call == "subscribe" else "address": "node"}
        table = {"create_sender": SENDER, "create_receiver": RECEIVER, "subscribe": SUBSCRIBE}[call]
        others = {"shared": True} if call == "subscribe" and argument == "name" else {}
        for value in table[argument]:
            await refused(getattr(connection, call), argument, value, **named, **others)
        await nothing_happened(peer, connection)


async def test_wrong_arguments_of_unsubscribe(api: API) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        for argument, values in UNSUBSCRIBE.items():
            for value in values:
                others = {} if argument == "name" else {"name": "audit"}
                await refused(connection.unsubscribe, argument, value, **others)
        await nothing_happened(peer, connection)


@pytest.mark.parametrize("call", CALLS_OF_SENDERS)
async def test_wrong_arguments_of_senders(api: API, call: str) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        sender = await connection.create_sender("q")
        method = getattr(sender, call)
        if call == "submit_nowait" and not isinstance(api, BlockingAPI):
            method = _awaited(method)
        others = {"send_many": {"messages": [b"one"]}, "flush": {}}.get(call, {"message": b"one"})
        for argument, values in CALLS_OF_SENDERS[call].items():
            for value in values:
                await refused(method, argument, value, **others)
        assert sender.unsettled == 0
        assert (await sender.send(b"two")).accepted
        assert peer.bodies == [b"two"]


@pytest.mark.parametrize("call", CALLS_OF_RECEIVERS)
async def test_wrong_arguments_of_receivers(api: API, call: str) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q", credit=0 if call == "add_credit" else 2)
        peer.put("q", 1, 2)
        if call != "add_credit":
            await peer.until(lambda: peer.unsettled == 2)
        others: dict[str, Any] = {"receive_many": {"max_count": 2}, "accept_many": {"deliveries": []}}.get(
            call, {}
        )
        for argument, values in CALLS_OF_RECEIVERS[call].items():
            for value in values:
                await refused(getattr(receiver, call), argument, value, **others)
        if call == "add_credit":
            await receiver.add_credit(2)
        assert [each.body for each in await receiver.receive_many(2, min_count=2)] == [1, 2]


@pytest.mark.parametrize("call", CALLS_OF_DELIVERIES)
async def test_wrong_arguments_of_deliveries(api: API, call: str) -> None:
    async with primary() as peer, connected(api, peer) as connection:
        receiver = await connection.create_receiver("q")
        peer.put("q", 1)
        delivery = await receiver.receive()
        for argument, values in CALLS_OF_DELIVERIES[call].items():
            for value in values:
                await refused(getattr(delivery, call), argument, value)
        assert not delivery.settled
        await delivery.accept()


async def nothing_happened(peer: Primary, connection: Any) -> None:
    """Assert that no link was attached, and that the connection works."""
    assert peer.attaches == []
    assert (await (await connection.create_sender("q")).send(b"one")).accepted


def _awaited(method: Any) -> Any:
    async def call(*arguments: Any, **named: Any) -> Any:
        return method(*arguments, **named)

    return call
