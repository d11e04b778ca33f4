"""Events as lines of text and as JSON, and the console for tables."""

from __future__ import annotations

import enum
import re
import sys
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from haclient import events
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Failure
from haclient.events import Event
from haclient.printable.text import printable

WIDE = 400  # columns if standard output is no terminal: no text is wrapped or cut


def name_of(event: Event) -> str:
    """Return the name of an event's type: ``attempt-failed`` for ``AttemptFailed``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(event).__name__).lower()


def describe(event: Event) -> str:  # noqa: C901 - one case for each
    """Describe an event, without its name."""
    match event:
        case events.AttemptStarted():
            return f"{event.attempt}: {event.endpoint}"
        case events.AttemptFailed():
            return f"{event.record.number}: {event.record.endpoint}: {describe_failure(event.record.failure)}"
        case events.Parked():
            return f"{event.attempt}: {event.endpoint} holds the connection until it serves"
        case events.Redirected():
            refusal = "" if event.followed else f", not followed: {event.detail}"
            return f"{event.by} names {event.target}{refusal}"
        case events.BackingOff():
            return f"{event.delay:.3f} s after round {event.round}" + _retry_after(event.retry_after)
        case events.Connected() | events.Reconnected():
            return _served(event)
        case events.Disconnected():
            return f"{event.endpoint}: {event.reason}; {event.unsettled:,} unsettled"
        case events.LinkRetrying() | events.Unsettled() | events.DeliveryStale() | events.GaveUp():
            return _not_served(event)
        case events.GenerationsForgotten():
            claim = (
                f"generation {event.generation} of cluster {event.cluster!r}, where {event.highest} was known"
            )
            return f"only stale primaries serve; {event.endpoint} has {claim}"
        case events.Blocked():
            return f"{event.endpoint} takes no messages"
        case events.Unblocked():
            return f"{event.endpoint} takes messages again, after {event.duration:.3f} s"
        case events.Closed():
            return ""


def describe_failure(failure: Failure) -> str:
    """Describe the reason for a failed attempt."""
    detail = f": {failure.detail}" if failure.detail else ""
    return f"{failure.kind.value}{detail}" + _retry_after(failure.retry_after)


def line_of(event: Event) -> str:
    """Format an event as one line: time of day, name and description."""
    time = datetime.fromtimestamp(event.stamp.time, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
    return f"{time}  {name_of(event):<15}  {printable(describe(event))}".rstrip()


def json_of(event: Event) -> dict[str, Any]:
    """Return an event as a JSON object: the fields of its dataclass and of its stamp."""
    facts = {each.name: _plain(getattr(event, each.name)) for each in fields(event) if each.name != "stamp"}
    stamp = _plain(event.stamp)
    stamp["time"] = datetime.fromtimestamp(event.stamp.time, UTC).isoformat()
    return {"event": name_of(event), **stamp, **facts}


def _served(event: events.Connected | events.Reconnected) -> str:
    generation = "" if event.generation is None else f", generation {event.generation}"
    again = f", {event.replayed:,} sent again" if isinstance(event, events.Reconnected) else ""
    attempts = "1 attempt" if event.attempts == 1 else f"{event.attempts:,} attempts"
    return f"{event.endpoint}{generation}, {attempts} in {event.duration:.3f} s{again}"


def _not_served(
    event: events.LinkRetrying | events.Unsettled | events.DeliveryStale | events.GaveUp,
) -> str:
    if isinstance(event, events.DeliveryStale):
        return f"{event.link} to {event.address}: {event.reason}"
    if isinstance(event, events.Unsettled):
        where = f"{event.link} to {event.address}: " if event.link else ""
        return f"{where}{event.count:,} without an outcome: {event.reason}"
    if isinstance(event, events.GaveUp):
        return f"{event.reason}, after {event.attempts:,} attempts in {event.duration:.3f} s"
    reason = f"{event.condition}: {event.reason}" if event.reason else event.condition
    return f"{event.link} to {event.address}, refused with {reason}, again in {event.delay:.3f} s"


def _retry_after(seconds: float | None) -> str:
    return "" if seconds is None else f" (the server asks for {seconds:g} s)"


def _plain(value: Any) -> Any:
    if isinstance(value, Endpoint):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return value


def wide_console() -> Console:
    """Return a console on standard output, as wide as the terminal, or very wide without one."""
    return Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
