"""The members' routes to a ZooKeeper; the other routes are those of ``haclient.testing.network``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from haclient.testing.network import Cut
from haclient.testing.peers.listening import Peer
from haclient.testing.proxy import Proxy, proxy


class ZooKeeperRoutes:
    """One ZooKeeper, and a proxy on each member's route to it."""

    def __init__(self, url: str, path: str, routes: dict[str, Proxy]) -> None:
        self.url = url
        self._path = path
        self._routes = routes

    def member_url(self, member: str) -> str:
        """See ``haclient.testing.network.ArbiterRoutes``."""
        return f"zookeeper:{self._routes[member].address}{self._path}"

    def cut(self, member: str, how: Cut) -> None:
        """See ``haclient.testing.network.ArbiterRoutes``."""
        self._routes[member].hold() if how is Cut.HOLD else self._routes[member].refuse()

    def heal(self) -> None:
        """See ``haclient.testing.network.ArbiterRoutes``."""
        for route in self._routes.values():
            route.release()


@asynccontextmanager
async def zookeeper_routes(folder: Path, members: Sequence[str]) -> AsyncIterator[ZooKeeperRoutes]:
    """A ZooKeeper of its own and the routes to it."""
    from tests.zookeeper import ZooKeeper

    (folder / "zookeeper").mkdir()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        target = Peer("127.0.0.1", server.port)
        routes = {member: await stack.enter_async_context(proxy(target)) for member in members}
        yield ZooKeeperRoutes(server.url("/arbiter"), "/arbiter", routes)
