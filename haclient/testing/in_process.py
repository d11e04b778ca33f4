"""One broker in the test's own process: it starts in milliseconds, and cannot be killed.

    with in_process_broker() as broker:
        ...haclient.connect(broker.url)...

Theory of operation
-------------------
The broker is the member that ``broker-stub serve`` runs, as primary, with its queues in memory.  Its event
loop has a thread of its own.  Clients reach it through real sockets.

Rules
-----
* There is no signal handler, no process and no file.  A test that kills, pauses or restarts its broker needs
  ``pair.broker``; one that fails over needs ``pair.ha_pair``.
* At the end the broker closes the remaining connections, after a moment at most.
* An error in the broker's thread is raised at the end of the context, even if the test failed.
* The broker stays in the process that started it: a forked process has only its address.
* There are no users; a test of a log-in needs ``pair.ha_pair``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any

from broker_stub.broker import Broker as Member
from broker_stub.broker import BrokerOptions
from broker_stub.election.roles import Membership, Role
from haclient.testing.threads import LoopInThread, loop_in_thread

# Seconds for clients to send Close at the end.  A client on the event loop of an asynchronous test cannot:
# that loop is blocked while the fixture ends.
_STOP_TIMEOUT = 0.1
_NONE: Mapping[str, str] = MappingProxyType({})


class InProcessBroker:
    """One member in this process."""

    def __init__(self, loop: LoopInThread, member: Member) -> None:
        self._loop = loop
        self._member = member
        self._authority = member.address.authority

    @property
    def url(self) -> str:
        """Return the cluster URL for clients, without options."""
        return f"amqp://{self._authority}"

    @property
    def address(self) -> str:
        """Return ``host:port``."""
        return self._authority

    @property
    def options(self) -> Mapping[str, str]:
        """Return the URL options that a client needs to reach it: none (see ``peers.Peer``)."""
        return _NONE

    def close_connections(self) -> None:
        """Close every client's connection with ``amqp:connection:forced``: each may reconnect at once."""
        self._loop.do(lambda: self._member.close_client_connections("the test closes every connection"))

    def restore(self) -> None:
        """Reset the broker: delete every queue and exchange, and return when they are deleted."""
        self._loop.do(lambda: _delete_all(self._member))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"


@contextmanager
def in_process_broker() -> Iterator[InProcessBroker]:
    """Start one member in this process; it listens while the body runs.

    :raises ExceptionGroup: at the end, with the errors in the member's thread.
    """
    with loop_in_thread("broker for tests") as loop, loop.entered(_member()) as member:
        yield InProcessBroker(loop, member)


@asynccontextmanager
async def _member() -> AsyncIterator[Member]:
    raised: list[Exception] = []

    def keep(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        raised.append(error if isinstance(error, Exception) else RuntimeError(context["message"]))

    asyncio.get_running_loop().set_exception_handler(keep)
    options = BrokerOptions(membership=Membership(Role.PRIMARY, 1), stop_timeout=_STOP_TIMEOUT)
    async with Member(options) as member:
        yield member
    if raised:
        raise ExceptionGroup("the broker in this process raised", raised)


def _delete_all(member: Member) -> None:
    nodes = member.addresses
    for queue in tuple(nodes):
        if not queue.temporary:
            nodes.delete(queue)
    for exchange in nodes.exchanges:
        nodes.delete_exchange(exchange)
