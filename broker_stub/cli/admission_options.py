"""The options of ``serve`` and ``pair`` for the admission of clients and their use of resources."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from broker_stub.admission.controller import AdmissionOptions, RateSource
from broker_stub.connections.limits import DEFAULT_CONNECTION_LIMITS, MAX_SESSIONS, ConnectionLimits
from broker_stub.queueing.queue_limits import DEFAULT_STORE_LIMITS, StoreLimits
from broker_stub.sites.at_limit import AtLimit
from haclient.engine.heartbeat import LEAST_IDLE_TIMEOUT
from haclient.engine.settings import DEFAULT_MAX_FRAME_SIZE, MIN_FRAME_SIZE

_F = TypeVar("_F", bound=Callable[..., Any])
_UNLIMITED = "unlimited"
_DEFAULTS = AdmissionOptions()
_STORE, _CONNECTION = DEFAULT_STORE_LIMITS, DEFAULT_CONNECTION_LIMITS
_COUNT = click.IntRange(1)
# A frame is read completely before its message can be refused.
_MOST_FRAME_SIZE = 16 * 1024 * 1024
# Name, type, default and help, in the order of the table in docs/broker-stub.md.
_LIMITS: tuple[tuple[str, click.ParamType[Any], Any, str], ...] = (
    ("--max-queues", _COUNT, _STORE.queues, "Queues; a further one is refused."),
    ("--max-bytes", _COUNT, _STORE.size, "Bytes of messages in all queues; senders get no credit beyond."),
    ("--max-user-connections", _COUNT, None, "Connections of one user; the cluster-admin has no limit."),
    ("--max-sessions", click.IntRange(1, MAX_SESSIONS), _CONNECTION.sessions, "Sessions of a connection."),
    ("--max-links", _COUNT, _CONNECTION.links, "Links of a connection."),
    ("--max-unfinished", _COUNT, _CONNECTION.unfinished, "Bytes of a connection's unfinished messages."),
    ("--max-unfinished-total", _COUNT, _CONNECTION.all_unfinished, "The same of all connections."),
    ("--credit-bytes", _COUNT, _CONNECTION.credit_size, "Bytes of messages that a link has credit for."),
    (
        "--max-frame-size",
        click.IntRange(MIN_FRAME_SIZE, _MOST_FRAME_SIZE),
        DEFAULT_MAX_FRAME_SIZE,
        "Bytes of a frame that a client may send.",
    ),
    (
        "--min-idle-timeout",
        click.FloatRange(LEAST_IDLE_TIMEOUT),  # heartbeats are never sent faster
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


MEMBER_LIMITS = tuple(name.removeprefix("--") for name, *_ in _LIMITS)
"""The options of ``member_limits``, for the groups of the help."""


class RateType(click.ParamType[float | RateSource]):
    """A number, ``measured``, ``auto``, ``announced``, or ``unlimited``."""

    name = "rate"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | RateSource:
        """Parse the value, or fail with the reason."""
        if not isinstance(value, str):
            return value
        if value in tuple(RateSource):
            return RateSource(value)
        try:
            rate = math.inf if value == _UNLIMITED else float(value)
        except ValueError:
            rate = math.nan
        if not rate >= 0:
            self.fail(
                f"{value!r} is neither a number nor one of {', '.join(RateSource)}, {_UNLIMITED}", param, ctx
            )
        return rate or math.inf


def rate_options(command: _F) -> _F:
    """Add ``--accept-rate`` and ``--accept-burst`` to a command."""
    burst = click.option(
        "--accept-burst",
        type=click.FloatRange(1),
        help="Clients admitted at once after an idle time.  [default: those of 0.1 s, at least 8]",
    )
    rate = click.option(
        "--accept-rate",
        type=RateType(),
        default=str(RateSource.MEASURED),
        show_default=True,
        help="Clients admitted a second: a number, measured (at the start), auto (follows load), unlimited,"
        " or announced (no limit, and clients spread themselves).",
    )
    return rate(burst(command))


def limit_options(command: _F) -> _F:
    """Add the limits of unfinished and parked connections to a command."""
    handshakes = click.option(
        "--max-handshakes",
        type=click.IntRange(1),
        default=_DEFAULTS.max_handshakes,
        show_default=True,
        help="Connections without an Open; at the limit the oldest is aborted.",
    )
    limit = click.option(
        "--park-limit",
        type=click.IntRange(0),
        default=_DEFAULTS.park_limit,
        show_default=True,
        help="Clients parked until they can be served.",
    )
    timeout = click.option(
        "--park-timeout",
        type=click.FloatRange(0, min_open=True),
        default=_DEFAULTS.park_timeout,
        show_default=True,
        help="Seconds that a client is parked.",
    )
    return handshakes(limit(timeout(command)))


# -- resources that clients may use ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLimits:
    """The limits on a member's resources that clients may use.

    :param serve_arguments: the same limits as arguments of ``serve``.
    """

    store: StoreLimits
    connection: ConnectionLimits
    user_connections: int | None
    frame_size: int
    site_at_limit: AtLimit
    serve_arguments: tuple[str, ...]


def member_limits(command: Callable[..., None]) -> Callable[..., None]:
    """Add the limit options to a command, which receives them as its argument ``limits``."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(_parameter(name)) for name, *_ in _LIMITS}
        command(limits=_limits(given), **arguments)

    decorated: Callable[..., None] = run
    for name, kind, default, text in reversed(_LIMITS):
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
        frame_size=given["--max-frame-size"],
        site_at_limit=AtLimit(given["--site-at-limit"]),
        serve_arguments=tuple(part for name, value in pairs for part in (name, str(value))),
    )
