"""Sinks: turn a factory's events into metrics and spans.

    connect(url, on_event=PrometheusSink())

Rules
-----
* A sink may serve several factories.  Each gets its own listener, called in a thread of its own.  A slow
  listener delays nothing; one that raises is logged and called again (``event_log``).
* Every text from the network passes the factory's redactor (``redact``) before it is written.  It is not
  written if it holds a password.  Peers' descriptions are never written, only the names of conditions.
* Labels have few values: hosts and conditions have at most ``MOST_NAMES`` each; further ones become
  ``OTHER``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from haclient.events import Event
from haclient.telemetry.redact import Redactor

# A cluster has few members, but redirects of a broken peer may name any number.
MOST_NAMES = 32
OTHER = "other"

EventCallback = Callable[[Event], object]


@runtime_checkable
class Sink(Protocol):
    """Makes a listener for one factory."""

    def listener(self, redactor: Redactor) -> EventCallback:
        """Return the function to call with each event of a factory.

        :param redactor: knows the secrets that must not be written.
        """


def callbacks(
    given: EventCallback | Sink | Iterable[EventCallback | Sink] | None, redactor: Redactor
) -> list[EventCallback]:
    """Return the functions to call, for the argument ``on_event`` of a factory.

    :raises TypeError: for an object that is neither a function nor a sink.
    """
    if given is None:
        return []
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):  # of functions and sinks
        return [each for one in given for each in callbacks(one, redactor)]
    if isinstance(given, Sink):
        return [given.listener(redactor)]
    if not callable(given):
        raise TypeError(f"on_event: a {type(given).__name__} is neither a function nor a sink")
    return [given]


class Names:
    """The first ``MOST_NAMES`` values of a label.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()

    def known(self, name: str | None) -> str:
        """Return the name, or ``OTHER`` if there are too many or the name must not be written."""
        if name is None:
            return OTHER
        with self._lock:
            if name not in self._known and len(self._known) >= MOST_NAMES:
                return OTHER
            self._known.add(name)
        return name
