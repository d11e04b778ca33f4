"""proton's own ``Container`` with its reconnect: the program of ``container``, without haclient.

proton never reports the outcome of a delivery that was in flight when the connection was lost. At the end
such messages are recorded as *unknown*.
"""

from __future__ import annotations

import time
from typing import Any

from proton.reactor import Container

from tests.brokers.programs import container
from tests.brokers.programs.task import members
from tests.faults.history import Fate

_HEARTBEAT = 4
# Seconds without an outcome, after which none is expected.
_QUIET = 5.0


def _connect(url: str, container: Any) -> Any:
    addresses, user, password = members(url)
    account = {"user": user, "password": password, "allowed_mechs": "PLAIN"} if user else {}
    urls = [f"amqp://{address}" for address in addresses]
    return container.connect(urls=urls, heartbeat=_HEARTBEAT, allow_insecure_mechs=True, **account)


class Producer(container.Producer):
    """At the end, gives up messages without an outcome."""

    _settled_at = 0.0

    def _connect(self, container: Any) -> Any:
        return _connect(self._task.url, container)

    def _settled(self, event: Any, error: Exception | None) -> None:
        self._settled_at = time.monotonic()
        super()._settled(event, error)

    def _ends(self) -> bool:
        if self._finishing.is_set() and time.monotonic() - self._settled_at > _QUIET:
            for name, _ in self._pending.values():
                self._journal.ends(name, Fate.UNKNOWN, time.monotonic())
            self._pending.clear()
        return super()._ends()


class Consumer(container.Consumer):
    """The same consumer as in ``container``."""

    def _connect(self, container: Any) -> Any:
        return _connect(self._task.url, container)


if __name__ == "__main__":
    container.main(Container, Producer, Consumer)
