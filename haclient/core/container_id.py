"""The container id in the Opens of one connection, and whether this process has it in use elsewhere.

Rules
-----
* The ``client_id`` that the application gave is the id of every connection of its factory.
* Else each connection has an id of its own, ``client_id-NUMBER``, over all its reconnects: ActiveMQ Classic
  refuses a second connection with the same id.
* A member that still counts a lost connection of this client refuses its id as in use.  Then the next attempt
  has another one, ``client_id-NUMBER-2`` and so on; but not while a receiver or a reservation depends on it.
* A given id never changes.  If a connection of this process has it at that very address, the refusal is
  final: waiting does not help while that connection is open.

Source: OASIS "AMQP Enforcing Connection Uniqueness Version 1.0", section 4.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from haclient.engine.settings import CLIENT_ID, CONNECTION_NUMBER

if TYPE_CHECKING:
    from haclient.core.attempt import ConnectParams
    from haclient.engine.protocol import Engine


class ContainerId:
    """The container id of one connection.

    :param client_id: that of the factory; ``given``: the one that the application chose, if any.
    :param number: that of the connection in its factory.
    :param is_pinned: returns whether something at the peer depends on the id of now.
    """

    def __init__(self, client_id: str, given: str | None, number: int, is_pinned: Callable[[], bool]) -> None:
        self._client_id = client_id
        self._number = number
        self._given = given
        self._is_pinned = is_pinned
        self._in_use = 0

    @property
    def value(self) -> str:
        """The id that the next Open has."""
        if self._given is not None:
            return self._given
        again = f"-{self._in_use + 1}" if self._in_use else ""
        return f"{self._client_id}-{self._number}{again}"

    def apply(self, params: ConnectParams) -> ConnectParams:
        """The parameters of an attempt of this connection.

        A busy primary reserves a time for each number, and members report the ``client_id``.
        """
        made = self.value
        settings = replace(params.settings, container_id=made)
        if not params.exact_properties:
            ids = {CONNECTION_NUMBER: self._number}
            named = ids if made == self._client_id else {**ids, CLIENT_ID: self._client_id}
            settings = replace(settings, properties={**settings.properties, **named})
        return replace(params, settings=settings, on_id_in_use=partial(self._refused, made))

    def _refused(self, refused: str) -> None:
        # An attempt that was dialled before the last change says nothing about the id of now.
        if self._given is None and refused == self.value and not self._is_pinned():
            self._in_use += 1


class OpenConnections:
    """The connections of this process that are in use, of all its factories; for any thread."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._engines: weakref.WeakSet[Engine] = weakref.WeakSet()

    def _check_process(self) -> None:
        if self._pid != os.getpid():  # those of the parent, and a lock that one of its threads may hold
            self._begin()

    def add(self, engine: Engine) -> None:
        """Add a connection, until it has ended or is being closed."""
        self._check_process()
        with self._lock:
            self._engines.add(engine)

    def remove(self, engine: Engine | None) -> None:
        """Forget one that is being closed: the peer frees its container id."""
        self._check_process()
        if engine is not None:
            with self._lock:
                self._engines.discard(engine)

    def have_id_of(self, refused: Engine) -> bool:
        """Return whether one of them has the container id of this connection, at the same address."""
        self._check_process()
        with self._lock:
            engines = tuple(self._engines)
        peer, container_id = refused.peer, refused.settings.container_id
        return any(
            each.close_reason is None and each.settings.container_id == container_id and each.peer == peer
            for each in engines
            if each is not refused
        )


OPEN_CONNECTIONS = OpenConnections()
"""One for the process: a broker counts its connections, whichever factory or container made them."""
