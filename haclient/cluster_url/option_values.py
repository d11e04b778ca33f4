"""How the values of URL options are written: one small parser for each kind of value.

A parser takes text and returns the value, or raises ``ValueError`` with a text that continues
"option 'x': ...".  ``as_text`` is its inverse: ``parse(as_text(value)) == value``.
Values given in Python are turned into text first: there is one validation, not two.
"""

from __future__ import annotations

import datetime
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from haclient.cluster_url.attribute_list import parse_attributes
from haclient.cluster_url.authority import parse_host, split_host_port

DNS_PORT = 53
# Room for any sane wait, while sums of it stay far below what a clock or a timer holds.
LONGEST_SECONDS = 1e8
# Delivery numbers are compared by RFC 1982 serial arithmetic, which holds for half of 32 bits
# (AMQP 1.0 part 2, section 2.8.10).
MOST_DELIVERIES = 2**31 - 1

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+"
_DURATION = re.compile(rf"(?P<number>{_NUMBER})(?P<suffix>ms|s|m|h)?")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_BOOLEANS = {
    "true": True,
    "yes": True,
    "1": True,
    "on": True,
    "false": False,
    "no": False,
    "0": False,
    "off": False,
}
# RFC 4422 section 3.1.
_MECHANISM = re.compile(r"[A-Z0-9_-]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of value.

    :param parse: text to value, or ``ValueError``.
    :param type: for people.
    :param accepts: the annotation of a keyword argument, which may be text in every case.
    :param unit: for people; empty when there is none.
    :param range: the values allowed, for people; empty when ``type`` says it all.
    :param choices: every value there is, when they can be listed.
    """

    parse: Callable[[str], object]
    type: str
    accepts: str = "str"
    unit: str = ""
    range: str = ""
    choices: tuple[str, ...] = ()


def seconds(low: float, high: float = LONGEST_SECONDS, *, or_zero: bool = False) -> Kind:
    """A length of time: ``2.5``, ``250ms``, ``10s``, ``5m``, ``1h``."""

    def parse(text: str) -> float:
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a time: write seconds (2.5) or use ms, s, m, h (250ms)")
        value = _scaled(float(match["number"]), match["suffix"] or "s")
        return value if or_zero and value == 0 else _within(value, low, high)

    bounds = _bounds(low, high, LONGEST_SECONDS)
    return Kind(
        parse=parse,
        type="time",
        accepts="float | str | timedelta",
        unit="seconds",
        range=f"0, or {bounds}" if or_zero else bounds,
    )


def whole(low: int, high: int, unit: str = "") -> Kind:
    """A whole number."""

    def parse(text: str) -> int:
        # Ten digits hold every limit; int() refuses some longer ones with a text of its own.
        if not re.fullmatch(r"-?[0-9]{1,10}", text):
            raise ValueError(f"{text!r} is not a whole number from {low} to {high}")
        return int(_within(int(text), low, high))

    bounds = _bounds(low, high, MOST_DELIVERIES)
    return Kind(parse=parse, type="integer", accepts="int | str", unit=unit, range=bounds)


def number(low: float, high: float) -> Kind:
    """A number that may have a fraction."""

    def parse(text: str) -> float:
        if not re.fullmatch(_NUMBER, text):
            raise ValueError(f"{text!r} is not a number from {as_text(low)} to {as_text(high)}")
        return _within(float(text), low, high)

    return Kind(parse=parse, type="number", accepts="float | str", range=_bounds(low, high, math.inf))


def one_of(choices: tuple[str, ...], removed: Mapping[str, str] = MappingProxyType({})) -> Kind:
    """One word of a list.

    :param removed: words of earlier versions, and what to use instead.
    """

    def parse(text: str) -> str:
        if text in removed:
            raise ValueError(f"{text!r} was removed: use {removed[text]!r}, or leave the option out")
        if text not in choices:
            raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return Kind(parse=parse, type="choice", choices=choices)


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError(f"{text!r} is neither true nor false (true, yes, 1, on; false, no, 0, off)")
    return value


def _text(text: str) -> str:
    if not text:
        raise ValueError("the value is empty")
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("the value is not UTF-8 text")
    return text


def _directory(text: str) -> str:
    return "" if text in {"", "none"} else _text(text)


def _attributes(text: str) -> str:
    parse_attributes(_text(text))
    return text


def _mechanisms(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.upper() for name in re.split(r"[\s,+]+", text) if name))
    if not names or not all(_MECHANISM.fullmatch(name) for name in names):
        raise ValueError(f"{text!r} is not a list of SASL mechanisms, as in SCRAM-SHA-256,PLAIN")
    return names


def _members(text: str) -> tuple[str, ...]:
    members = tuple(dict.fromkeys(text.split(",")))
    for member in members:
        split_host_port(member, DNS_PORT)
    return members


def _nameserver(text: str) -> str:
    try:
        split_nameserver(text)
    except ValueError:
        raise ValueError(f"{text!r} is not host, host:port or [v6]:port") from None
    return text


def split_nameserver(text: str) -> tuple[str, int]:
    """``host``, ``host:port``, ``v6`` or ``[v6]:port`` to host and port."""
    bare_ipv6 = text.count(":") > 1 and "[" not in text
    return split_host_port(f"[{text}]" if bare_ipv6 else text, DNS_PORT)


BOOLEAN = Kind(parse=_boolean, type="boolean", accepts="bool | str")
TEXT = Kind(parse=_text, type="text")
PATH = Kind(parse=_text, type="path", accepts="str | os.PathLike[str]")
# As OpenTelemetry writes them: key=value, with commas between.
ATTRIBUTES = Kind(parse=_attributes, type="attributes")
# Empty is a value: off, whatever would be without it.
DIRECTORY = Kind(parse=_directory, type="directory", accepts="str | os.PathLike[str]")
HOST = Kind(parse=parse_host, type="host")
MECHANISMS = Kind(parse=_mechanisms, type="list", accepts="str | tuple[str, ...]")
# Hosts, each with its port or without.
MEMBERS = Kind(parse=_members, type="list", accepts="str | tuple[str, ...]")
NAMESERVER = Kind(parse=_nameserver, type="address")


def as_text(value: object) -> str:
    """A value as it stands in a URL, before percent-encoding; ``None`` is ``none``.

    :raises ValueError: for a type that no option has.
    """
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case str() | int():
            return str(value)
        case float():
            return repr(value).removesuffix(".0")
        case datetime.timedelta():
            return as_text(value.total_seconds())
        case os.PathLike():
            return str(os.fspath(value))
        case tuple() | list() | set() | frozenset():
            return ",".join(map(as_text, value))
        case _:
            raise ValueError(f"a value of type {type(value).__name__} cannot be used")


def _scaled(value: float, suffix: str) -> float:
    # Division, not multiplication by 0.001, gives 0.25 for 250ms exactly.
    return value / 1000 if suffix == "ms" else value * _SECONDS[suffix]


def _bounds(low: float, high: float, highest: float) -> str:
    return f"from {as_text(low)}" if high == highest else f"{as_text(low)} to {as_text(high)}"


def _within(value: float, low: float, high: float) -> float:
    if not (math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{value:g} is out of range: {as_text(low)} to {as_text(high)}")
    return value
