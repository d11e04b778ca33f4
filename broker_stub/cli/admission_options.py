"""The options of ``serve`` and ``pair`` for the admission of clients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker_stub.admission.controller import AdmissionOptions, RateSource

_F = TypeVar("_F", bound=Callable[..., Any])
_UNLIMITED = "unlimited"
_DEFAULTS = AdmissionOptions()


class RateType(click.ParamType[float | RateSource]):
    """A number, ``measured``, ``auto``, or ``unlimited``."""

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
        help="Clients admitted a second: a number, measured (at the start), auto (follows load), unlimited.",
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
