"""The options of ``serve`` and ``pair`` that limit what clients may use of a member."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from broker_stub.connections.limits import DEFAULT_CONNECTION_LIMITS, MAX_SESSIONS, ConnectionLimits
from broker_stub.queueing.queue_limits import DEFAULT_STORE_LIMITS, StoreLimits
from broker_stub.sites.site_link import AtLimit

_STORE, _CONNECTION = DEFAULT_STORE_LIMITS, DEFAULT_CONNECTION_LIMITS
_COUNT = click.IntRange(1)
# Name, type, default and help, in the order of the table in docs/broker-stub.md.
_OPTIONS: tuple[tuple[str, click.ParamType[Any], Any, str], ...] = (
    ("--max-queues", _COUNT, _STORE.queues, "Queues; a further one is refused."),
    ("--max-bytes", _COUNT, _STORE.size, "Bytes of messages in all queues; senders get no credit beyond."),
    ("--max-user-connections", _COUNT, None, "Connections of one user; the cluster-admin has no limit."),
    ("--max-sessions", click.IntRange(1, MAX_SESSIONS), _CONNECTION.sessions, "Sessions of a connection."),
    ("--max-links", _COUNT, _CONNECTION.links, "Links of a connection."),
    ("--max-unfinished", _COUNT, _CONNECTION.unfinished, "Bytes of a connection's unfinished messages."),
    ("--max-unfinished-total", _COUNT, _CONNECTION.all_unfinished, "The same of all connections."),
    ("--credit-bytes", _COUNT, _CONNECTION.credit_size, "Bytes of messages that a link has credit for."),
    (
        "--min-idle-timeout",
        click.FloatRange(0),
        _CONNECTION.idle_timeout,
        "Seconds; a client that asks for a shorter idle-time-out is refused.",
    ),
    (
        "--site-at-limit",
        click.Choice([str(each) for each in AtLimit]),
        str(AtLimit.HOLD),
        "What a link from another site does when there is no room for an event: wait, or end.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLimits:
    """What clients may use of a member.

    :param serve_arguments: the same as arguments of ``serve``.
    """

    store: StoreLimits
    connection: ConnectionLimits
    user_connections: int | None
    site_at_limit: AtLimit
    serve_arguments: tuple[str, ...]


def member_limits(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as its argument ``limits``."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(_parameter(name)) for name, *_ in _OPTIONS}
        command(limits=_limits(given), **arguments)

    decorated: Callable[..., None] = run
    for name, kind, default, text in reversed(_OPTIONS):
        decorated = click.option(name, type=kind, default=default, show_default=True, help=text)(decorated)
    return decorated


def _parameter(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _limits(given: dict[str, Any]) -> MemberLimits:
    pairs = ((name, value) for name, value in given.items() if value is not None)
    return MemberLimits(
        store=StoreLimits(queues=given["--max-queues"], size=given["--max-bytes"]),
        connection=ConnectionLimits(
            sessions=given["--max-sessions"],
            links=given["--max-links"],
            unfinished=given["--max-unfinished"],
            all_unfinished=given["--max-unfinished-total"],
            credit_size=given["--credit-bytes"],
            idle_timeout=given["--min-idle-timeout"],
        ),
        user_connections=given["--max-user-connections"],
        site_at_limit=AtLimit(given["--site-at-limit"]),
        serve_arguments=tuple(part for name, value in pairs for part in (name, str(value))),
    )
