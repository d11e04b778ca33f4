"""The suites of qpid-interop-test as cases for any pair of shims: sent values and expected messages.

Each case has its own queue. Some values (headers, properties) belong to the command line, not to the
messages. For them the sender runs once for each value, and the receiver once for all.

Source: the test modules of qpid-interop-test 2.0 (types, header section, JMS, large content). The
values of the types in JMS maps and streams are our own, as the originals are only texts.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.interop.qit.checkout import Shim, jms_values, type_values
from tests.interop.qit.values import PRIMITIVES

Check = Callable[[Mapping[str, Any]], str]
"""Returns the error in a message that a receiver printed; empty if there is none."""

SUITES = ("types", "complex", "header", "jms", "jms-headers", "large", "larger")

_JMS_KINDS = {
    "text": ("string", "JMS_TEXTMESSAGE_TYPE"),
    "bytes": ("binary", "JMS_BYTESMESSAGE_TYPE"),
    "none": ("null", "JMS_MESSAGE_TYPE"),
    "map": ("map", "JMS_MAPMESSAGE_TYPE"),
    "stream": ("list", "JMS_STREAMMESSAGE_TYPE"),
}
# The names that a JMS client's shim has for the type of a value.
_JMS_VALUES = {"string": "text", "binary": "bytes", "null": "none"}
_SAME = {"string": "text", "binary": "bytes", "null": "none"}
_IN_MAPS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "byte": [-128, 127],
    "short": [-32768, 32767],
    "int": [-(2**31), 2**31 - 1],
    "long": [-(2**63), 2**53 + 1, 2**63 - 1],
    "float": ["0x40490fdb", "0x80000000", "0x7f800000"],
    "double": ["0x400921fb54442d18", "0x8000000000000000", "0x7ff0000000000000"],
    "binary": ["", "48656c6c6f"],
}
_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
# Every value that QIT has for each header field, in as few messages as possible.
_HEADERS: tuple[dict[str, Any], ...] = (
    {"durable": True, "priority": 0, "ttl": 60_000, "first_acquirer": True},
    {"durable": False, "priority": 4, "ttl": 300_000, "first_acquirer": False},
    {"priority": 7},
    {"priority": 9},
    {},
)
_DURABLE = json.dumps({"durable": True})
_MANY_FAILOVERS = 10
# The QIT values for each JMS header, with the type that the command line states.
_JMS_HEADERS = {
    "JMSCorrelationID": (("string", "CORRELATION_ID_STRING"), ("bytes", "CORRELATION_ID_BYTES")),
    "JMSReplyTo": (("queue", "REPLY_TO_QUEUE"), ("topic", "REPLY_TO_TOPIC")),
    "JMSType": (("string", "JMS_TYPE"),),
}
_PROPERTY_SETS = ("BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING")


@dataclass(frozen=True, slots=True)
class Item:
    """One value that must arrive.

    :param name: the name on the page.
    :param text: the text of the body that identifies its message; ``None`` if its position does.
    :param mark: a text in its message that precedes its bytes.
    """

    name: str
    check: Check
    text: str | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """One run of a sender.

    :param arguments: the run's own arguments, after those for the broker and the queue.
    :param messages: the number of messages it sends.
    :param items: one item for each message, or all items of a single message.
    """

    arguments: tuple[str, ...]
    items: tuple[Item, ...]
    messages: int = 1

    def joined(self, other: Send) -> Send:
        """Merge this run with another one, for a sender that reads the type of each message."""
        at = self.arguments.index("--data") + 1, other.arguments.index("--data") + 1
        data = [*json.loads(self.arguments[at[0]]), *json.loads(other.arguments[at[1]])]
        both = Send(_data("string", data), self.items + other.items, self.messages + other.messages)
        return both.made_durable() if "--message-header" in self.arguments else both

    def made_durable(self) -> Send:
        """Return this run with durable messages, unless its arguments set a header."""
        if "--message-header" in self.arguments:
            return self
        return Send((*self.arguments, "--message-header", _DURABLE), self.items, self.messages)

    def split(self) -> list[Send]:
        """Return one run for each message, if each message is one item."""
        if self.messages == 1 or len(self.items) != self.messages:
            return [self]
        at = self.arguments.index("--data") + 1
        parts = []
        for each, item in zip(json.loads(self.arguments[at]), self.items, strict=True):
            given = [*self.arguments[:at], json.dumps([each]), *self.arguments[at + 1 :]]
            if "--count" in given:
                given[given.index("--count") + 1] = "1"
            parts.append(Send(tuple(given), (item,)))
        return parts


@dataclass(frozen=True, slots=True)
class Case:
    """Values that are sent and received under one name.

    :param large: the arguments of a receiver that compares the body itself.
    :param seconds: the receiver's time limit.
    """

    suite: str
    name: str
    sends: tuple[Send, ...]
    large: tuple[str, ...] = ()
    seconds: int = 20

    @property
    def items(self) -> tuple[Item, ...]:
        """Return the items of every run."""
        return tuple(item for send in self.sends for item in send.items)


@dataclass(frozen=True, slots=True)
class Batch:
    """Cases that share one queue, so that a receiver runs once for all of them.

    :param joined: the suites whose cases one run of the sender sends.
    """

    name: str
    cases: tuple[Case, ...]
    joined: tuple[str, ...] = ()

    @property
    def sends(self) -> tuple[Send, ...]:
        """Return the runs of every case, in order."""
        together = [send for case in self.cases if case.suite in self.joined for send in case.sends]
        alone = [send for case in self.cases if case.suite not in self.joined for send in case.sends]
        return (*((functools.reduce(Send.joined, together),) if together else ()), *alone)

    def made_durable(self) -> Batch:
        """Return this batch with durable messages."""
        cases = (
            replace(case, sends=tuple(send.made_durable() for send in case.sends)) for case in self.cases
        )
        return replace(self, cases=tuple(cases))

    @property
    def large(self) -> tuple[str, ...]:
        """Return the receiver's arguments for a body that it compares itself."""
        return self.cases[0].large

    @property
    def seconds(self) -> int:
        """Return the receiver's time limit, in seconds."""
        return self.cases[0].seconds


def batches(
    checkout: Path, sender: Shim, suites: Sequence[str], *, jms_receivers: bool, durable: bool = False
) -> Iterator[Batch]:
    """Yield the batches that one sender sends to every receiver of one kind.

    :param jms_receivers: whether the receivers speak JMS.
    :param durable: make every message durable. Runs without an option for that are left out: all runs
        of a JMS sender, and the large bodies of foreign shims.
    """
    if durable and sender.speaks_jms:
        return
    values = jms_values(checkout)
    small = [*_jms(values, jms_sender=sender.speaks_jms), _jms_headers(values, jms_sender=sender.speaks_jms)]
    if not sender.speaks_jms and not jms_receivers:
        small = [*_types(type_values(checkout)), _header(durable=durable), *small]
    # A broker orders by priority, so the header section has its own queue.
    for name, of in (
        ("amqp", ("types", "complex")),
        ("header", ("header",)),
        ("jms", ("jms", "jms-headers")),
    ):
        if chosen := tuple(case for case in small if case.suite in of and case.suite in suites):
            batch = Batch(name, chosen, sender.joins if name == "amqp" else ())
            yield batch.made_durable() if durable else batch
    if durable and not sender.fails_over:
        return
    for case in _large(jms_sender=sender.speaks_jms, jms_receivers=jms_receivers):
        if case.suite in suites:
            batch = Batch(case.name, (case,))
            yield batch.made_durable() if durable else batch


# -- types ----------------------------------------------------------------------------------------


def canonical(kind: str, value: Any) -> Any:
    """Return a form of the value that is equal for all shims."""
    if kind in ("float", "double") and isinstance(value, str):
        return int(value, 16)
    if kind in _BITS and isinstance(value, str):
        bits = int(value, 16)
        return bits - (1 << _BITS[kind]) if bits >> (_BITS[kind] - 1) else bits
    if kind == "array":
        return value["element_type"], [canonical(value["element_type"], item) for item in value["elements"]]
    if kind == "list":
        return [_pair(item) for item in value]
    if kind == "map":
        return sorted((repr(_pair(key)), repr(_pair(item))) for key, item in value)
    if kind == "described":
        return _pair(value["descriptor"]), _pair(value["value"])
    return value.lower() if kind in ("binary", "bytes", "uuid") and isinstance(value, str) else value


def _pair(pair: Any) -> tuple[str, Any]:
    kind, value = pair
    return kind, canonical(kind, value)


def has_body(kind: str, value: Any) -> Check:
    """Return a check for a body of this type and value."""
    wanted = (_SAME.get(kind, kind), canonical(kind, value))

    def check(message: Mapping[str, Any]) -> str:
        found_kind, found = message["type"], message.get("value")
        try:
            got = (_SAME.get(found_kind, found_kind), canonical(found_kind, found))
        except (TypeError, ValueError, KeyError):
            got = (found_kind, found)
        return "" if got == wanted else f"{_short(kind, value)} arrived as {_short(found_kind, found)}"

    return check


def _short(kind: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"{kind} {text if len(text) <= 80 else text[:60] + f'... ({len(text)} characters)'}"


def _types(values: Mapping[str, list[Any]]) -> Iterator[Case]:
    for kind, each in values.items():
        digits = {"float": 8, "double": 16}.get(kind)
        written = [f"0x{value:0{digits}x}" if digits else value for value in each]
        data = [{"index": index, "type": kind, "value": value} for index, value in enumerate(written)]
        items = tuple(Item(_short(kind, value), has_body(kind, value)) for value in written)
        suite = "types" if kind in PRIMITIVES else "complex"
        yield Case(suite, kind, (Send(_data(kind, data), items, len(items)),))


def _data(kind: str, data: list[dict[str, Any]], *more: str) -> tuple[str, ...]:
    return ("--type", kind, "--count", str(len(data)), "--data", json.dumps(data), *more)


# -- header section -------------------------------------------------------------------------------


def _header(*, durable: bool) -> Case:
    """Return the case of the header section.

    :param durable: make every message durable, with a time to live longer than some failovers take.
    """
    sends = []
    for index, given in enumerate(_HEADERS):
        header = given
        if durable and "ttl" in given:
            header = {**given, "durable": True, "ttl": _MANY_FAILOVERS * given["ttl"]}
        text = f"header section {index}"
        data = [{"index": index, "type": "string", "value": text}]
        sent = {**header, "durable": True} if durable else header
        options = ("--message-header", json.dumps(sent)) if sent else ()
        fields = header or {"delivery_count": 0}
        items = tuple(
            Item(f"{name} {json.dumps(value)}", _has_field(name, value), text)
            for name, value in fields.items()
        )
        sends.append(Send(_data("string", data, *options), items))
    return Case("header", "header section", tuple(sends))


def _has_field(field: str, wanted: Any) -> Check:
    def check(message: Mapping[str, Any]) -> str:
        found = message.get("message_header", {}).get(field)
        # A broker may deduct elapsed time from the time to live.
        good = 0 < found <= wanted if field == "ttl" and found is not None else found == wanted
        return "" if good else f"{field} {wanted!r} arrived as {found!r}"

    return check


# -- JMS ------------------------------------------------------------------------------------------


def _jms(values: Mapping[str, Any], *, jms_sender: bool) -> Iterator[Case]:
    bodies: dict[tuple[str, str], list[Any]] = {
        ("text", "string"): values["TEXT_MESSAGE_VALUES"],
        ("bytes", "binary"): values["BYTES_MESSAGE_VALUES"],
        ("none", "null"): [None],
        ("map", "string"): values["MAP_MESSAGE_VALUES"],
        ("stream", "string"): values["STREAM_MESSAGE_VALUES"],
    }
    for kind in ("map", "stream"):
        bodies |= {(kind, each): of_type for each, of_type in _IN_MAPS.items()}
    for kind, (amqp, jms) in _JMS_KINDS.items():
        data: list[dict[str, Any]] = []
        items: list[Item] = []
        for (body, value_type), each in bodies.items():
            for value in each if body == kind else ():
                name = _JMS_VALUES.get(value_type, value_type) if jms_sender else value_type
                data.append({"index": len(data), "type": name, "value": value})
                items.append(Item(f"{kind}: {_short(value_type, value)}", has_body(value_type, value)))
        arguments = _data(amqp, data, "--jms-mode")
        if jms_sender:
            arguments = ("--type", jms, "--data", json.dumps(data))
        yield Case("jms", kind, (Send(arguments, tuple(items), len(items)),))


def _jms_headers(values: Mapping[str, Any], *, jms_sender: bool) -> Case:
    """Return a case with one message for each value of a header, and one for the properties of every type."""
    given: dict[str, list[dict[str, Any]]] = {
        name: [
            {"type": kind, "value": value}
            for kind, known in sources
            for value in values[f"JMS_HEADERS_{known}"]
        ]
        for name, sources in _JMS_HEADERS.items()
    }
    sends = []
    for index in range(max(map(len, given.values()))):
        headers = {name: contents[index] for name, contents in given.items() if index < len(contents)}
        checks = [
            (f"{name}: {content['type']} {content['value']}", _has_jms_header(name, content))
            for name, content in headers.items()
        ]
        sends.append(_text(index, "--headers", headers, checks, jms_sender=jms_sender))
    sets = {kind.lower(): values[f"JMS_PROPS_{kind}"] for kind in _PROPERTY_SETS}
    checks = [(f"property: {next(iter(each))}, ...", _has_properties(each)) for each in sets.values()]
    properties = {name: value for each in sets.values() for name, value in each.items()}
    sends.append(_text(len(sends), "--properties", properties, checks, jms_sender=jms_sender))
    return Case("jms-headers", "headers and properties", tuple(sends))


def _text(index: int, option: str, value: Any, checks: list[tuple[str, Check]], *, jms_sender: bool) -> Send:
    text = f"headers {index}"
    data = [{"index": index, "type": "text" if jms_sender else "string", "value": text}]
    if jms_sender:
        arguments: tuple[str, ...] = ("--type", "JMS_TEXTMESSAGE_TYPE", "--data", json.dumps(data))
    else:
        arguments = _data("string", data, "--jms-mode")
    items = tuple(Item(name, check, text, _mark(name)) for name, check in checks)
    return Send((*arguments, option, json.dumps(value)), items)


def _mark(name: str) -> str:
    """Return the name of an item's first property; empty for a header, which has no name in the message."""
    return name.removeprefix("property: ").partition(",")[0] if name.startswith("property: ") else ""


def _has_jms_header(name: str, content: Mapping[str, Any]) -> Check:
    wanted = content["value"]

    def check(message: Mapping[str, Any]) -> str:
        found: Any = message.get("headers", {}).get(name)
        good = found == wanted
        if name == "JMSReplyTo":
            good = found == {"type": content["type"], "value": wanted}
        elif isinstance(found, dict):
            # The JMS shim tries to read bytes first, and gets them from a text too.
            bits = wanted if content["type"] == "bytes" else wanted.encode().hex()
            good = found.get("type") == "bytes" and found["value"].lower() == bits
        elif content["type"] == "bytes":
            good = False
        return "" if good else f"{content['type']} {wanted!r} arrived as {found!r}"

    return check


def _has_properties(properties: Mapping[str, Any]) -> Check:
    def check(message: Mapping[str, Any]) -> str:
        found = message.get("properties", {})
        wrong = [
            f"{name} {wanted} arrived as {found.get(name)}"
            for name, wanted in properties.items()
            if found.get(name) != wanted
        ]
        return "; ".join(wrong)

    return check


# -- large ----------------------------------------------------------------------------------------

_MEBIBYTE = 1 << 20
# Elements larger than a usual frame, and smaller ones whose size does not divide it.
_PARTS = {"24 parts of 43,690": (24, 43_690), "5 parts of 196,608": (5, 196_608)}
_JMS_CONTENT = ("binary", "string", "list", "map")


def _large(*, jms_sender: bool, jms_receivers: bool) -> Iterator[Case]:
    kinds = _JMS_CONTENT if jms_sender or jms_receivers else (*_JMS_CONTENT, "array", "described")
    mode = ("--jms-mode",) if jms_receivers and not jms_sender else ()
    for seed, kind in enumerate(kinds, start=100):
        if kind in ("binary", "string"):
            for suite, size in (("large", _MEBIBYTE), ("larger", 10 * _MEBIBYTE)):
                options = ("--large-content", kind, "--size", str(size), "--seed", str(seed))
                yield _whole(suite, f"{kind} of {size >> 20} MiB", options, mode)
            continue
        for name, (elements, size) in _PARTS.items():
            options = ("--large-content", kind, "--elements", str(elements), "--element-size", str(size))
            suite = "large" if kind in ("list", "array") else "larger"
            yield _whole(suite, f"{kind}, {name}", (*options, "--seed", str(seed)), mode)


def _whole(suite: str, name: str, options: tuple[str, ...], mode: tuple[str, ...]) -> Case:
    item = Item(name, lambda said: "" if said.get("match") is True else json.dumps(said))
    return Case(suite, name, (Send((*options, *mode), (item,)),), options, seconds=60)
