"""What the options of a ``failover:(...)`` URI mean here.

Such URIs come from Qpid JMS and ActiveMQ.  An option with a name of ours is ours, with or
without the prefix ``failover.``; the few below have an exact equivalent; every other one is
refused by name, for an option that is silently dropped is a setting that somebody relies on.

Sources: "QpidJMS configuration", section "Failover configuration options"; "ActiveMQ failover
transport reference".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from haclient.discovery.options import OPTION_NAMES, Options, parse_options, refuse_unknown
from haclient.discovery.url_error import ClusterURLError

PREFIX = "failover."


@dataclass(frozen=True, slots=True)
class _Equivalent:
    option: str
    convert: Callable[[str], str]


def _milliseconds(text: str) -> str:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a number of milliseconds")
    return f"{text}ms"


def _attempts(text: str) -> str:
    return "none" if text == "-1" else text


_EQUIVALENTS: Mapping[str, _Equivalent] = MappingProxyType(
    {
        "initialReconnectDelay": _Equivalent("backoff_base", _milliseconds),
        "reconnectDelay": _Equivalent("backoff_base", _milliseconds),
        "maxReconnectDelay": _Equivalent("backoff_max", _milliseconds),
        "reconnectBackOffMultiplier": _Equivalent("backoff_factor", str),
        "maxReconnectAttempts": _Equivalent("max_attempts", _attempts),
    }
)
_REFUSED: Mapping[str, str] = MappingProxyType(
    {"startupMaxReconnectAttempts": "the first connect is limited by time here: use startup_deadline"}
)


def parse_failover_options(pairs: Iterable[tuple[str, str]]) -> Options:
    """Options from the names and decoded texts of a failover URI.

    :raises ClusterURLError: names the option at fault as it was written.
    """
    written: dict[str, str] = {}
    ours: list[tuple[str, str]] = []
    for spelt, text in pairs:
        name, value = _translated(spelt, text)
        if name in written:
            raise ClusterURLError(f"option {spelt!r}: {name} was already set by {written[name]!r}", spelt)
        written[name] = spelt
        ours.append((name, value))
    return parse_options(ours, written)


def _translated(spelt: str, text: str) -> tuple[str, str]:
    name = spelt.removeprefix(PREFIX)
    if name in OPTION_NAMES:
        return name, text
    if name in _REFUSED:
        raise ClusterURLError(f"option {spelt!r}: {_REFUSED[name]}", spelt)
    if name not in _EQUIVALENTS:
        raise refuse_unknown(name, spelt)
    equivalent = _EQUIVALENTS[name]
    try:
        return equivalent.option, equivalent.convert(text)
    except ValueError as error:
        raise ClusterURLError(f"option {spelt!r}: {error}", spelt) from None
