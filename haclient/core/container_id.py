"""The container id in the Opens of one connection, and a check whether this process uses it elsewhere.

Rules
-----
* If the application gave a ``client_id``, every connection of its factory uses it.
* Otherwise each connection uses an id of its own, ``client_id-NUMBER``, for all its reconnects: ActiveMQ
  Classic refuses a second connection with the same id.
* A member that still counts a lost connection of this client refuses its id as in use.  The next attempt then
  uses ``client_id-NUMBER-2`` and so on, unless a receiver or a reservation depends on the current id.
* An id given by the application never changes.  If another connection of this process uses it at the same
  address, the refusal is final: waiting does not help while that connection is open.

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

    :param client_id: the client id of the factory; ``given``: the one that the application chose, if any.
    :param number: number of the connection in its factory.
    :param is_pinned: returns whether something at the peer depends on the current id.
    """

    def __init__(self, client_id: str, given: str | None, number: int, is_pinned: Callable[[], bool]) -> None:
        self._client_id = client_id
        self._number = number
        self._given = given
        self._is_pinned = is_pinned
        self._in_use = 0

    @property
    def value(self) -> str:
        """The container id for the next Open."""
        if self._given is not None:
            return self._given
        again = f"-{self._in_use + 1}" if self._in_use else ""
        return f"{self._client_id}-{self._number}{again}"

    def apply(self, params: ConnectParams) -> ConnectParams:
        """Return the parameters of an attempt, with the container id and the identity of this connection.

        Open's properties name the connection number and the ``client_id``, unless the parameters have
        ``exact_properties``.  A busy primary reserves a time for each connection number, and members report
        the ``client_id``.  After a call of the result's ``on_id_in_use``, ``value`` is the next id if the
        rules allow it.
        """
        made = self.value
        settings = replace(params.settings, container_id=made)
        if not params.exact_properties:
            ids = {CONNECTION_NUMBER: self._number}
            named = ids if made == self._client_id else {**ids, CLIENT_ID: self._client_id}
            settings = replace(settings, properties={**settings.properties, **named})
        return replace(params, settings=settings, on_id_in_use=partial(self._refused, made))

    def _refused(self, refused: str) -> None:
        # An attempt dialled before the last change of the id says nothing about the current id.
        if self._given is None and refused == self.value and not self._is_pinned():
            self._in_use += 1


class OpenConnections:
    """The open connections of this process, over all factories.  Thread-safe."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._engines: weakref.WeakSet[Engine] = weakref.WeakSet()

    def _check_process(self) -> None:
        if self._pid != os.getpid():  # after a fork: the connections and the lock are the parent's
            self._begin()

    def add(self, engine: Engine) -> None:
        """Add a connection."""
        self._check_process()
        with self._lock:
            self._engines.add(engine)

    def remove(self, engine: Engine | None) -> None:
        """Remove a connection that is being closed: the peer frees its container id."""
        self._check_process()
        if engine is not None:
            with self._lock:
                self._engines.discard(engine)

    def have_id_of(self, refused: Engine) -> bool:
        """Return whether another open connection uses this one's container id at the same address."""
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
"""One set for the process: a broker counts all its connections, whatever factory made them."""
