"""The routes that a test of faults can cut: the common interface of networks, and the routes to a
ZooKeeper.

The proxies between members and the directory come from ``haclient.testing.network``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.network import Cut
from haclient.testing.peers.listening import Peer
from haclient.testing.proxy import Proxy, proxy

ARBITER = "arbiter"
"""The third kind of party, after members and ``CLIENTS``."""


class Network(Protocol):
    """The addresses at which every party finds the others."""

    addresses: tuple[Endpoint, ...]
    """Where the members listen."""

    def client_addresses(self) -> list[str]:
        """The addresses of the members for clients."""

    def peer_addresses(self, member: str) -> list[str]:
        """The addresses of the other members for one member."""

    def listen(self, member: str) -> str:
        """Where a member listens."""

    def wrapper(self, member: str) -> tuple[str, ...]:
        """The prefix of a member's command."""

    def cut(self, one: str, other: str, how: Cut) -> None:
        """Cut a route, in both directions."""

    def heal(self) -> None:
        """Heal every route."""


class ArbiterRoutes(Protocol):
    """How each member reaches the arbiter."""

    url: str
    """For observers; never cut."""

    def member_url(self, member: str) -> str:
        """The arbiter's URL for a member."""

    def cut(self, member: str, how: Cut) -> None:
        """Cut one member off."""

    def heal(self) -> None:
        """Heal every route."""


class ZooKeeperRoutes:
    """One ZooKeeper, and a proxy on each member's route to it."""

    def __init__(self, url: str, path: str, routes: dict[str, Proxy]) -> None:
        self.url = url
        self._path = path
        self._routes = routes

    def member_url(self, member: str) -> str:
        """See ``ArbiterRoutes``."""
        return f"zookeeper:{self._routes[member].address}{self._path}"

    def cut(self, member: str, how: Cut) -> None:
        """See ``ArbiterRoutes``."""
        self._routes[member].hold() if how is Cut.HOLD else self._routes[member].refuse()

    def heal(self) -> None:
        """See ``ArbiterRoutes``."""
        for route in self._routes.values():
            route.release()


@asynccontextmanager
async def zookeeper_routes(folder: Path, members: Sequence[str]) -> AsyncIterator[ZooKeeperRoutes]:
    """A separate ZooKeeper and the routes to it."""
    from tests.zookeeper import ZooKeeper

    (folder / "zookeeper").mkdir()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        target = Peer("127.0.0.1", server.port)
        routes = {member: await stack.enter_async_context(proxy(target)) for member in members}
        yield ZooKeeperRoutes(server.url("/arbiter"), "/arbiter", routes)
