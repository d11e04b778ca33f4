"""The members' ways to a ZooKeeper; the other ways are those of ``haclient.testing.network``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from haclient.testing.network import Cut
from haclient.testing.peers.listening import Peer
from haclient.testing.proxy import Proxy, proxy


class ZooKeeperWays:
    """One ZooKeeper, and a proxy on each member's way to it."""

    def __init__(self, url: str, path: str, ways: dict[str, Proxy]) -> None:
        self.url = url
        self._path = path
        self._ways = ways

    def member_url(self, member: str) -> str:
        """See ``haclient.testing.network.ArbiterWays``."""
        return f"zookeeper:{self._ways[member].address}{self._path}"

    def cut(self, member: str, how: Cut) -> None:
        """See ``haclient.testing.network.ArbiterWays``."""
        self._ways[member].hold() if how is Cut.HOLD else self._ways[member].refuse()

    def heal(self) -> None:
        """See ``haclient.testing.network.ArbiterWays``."""
        for way in self._ways.values():
            way.release()


@asynccontextmanager
async def zookeeper_ways(folder: Path, members: Sequence[str]) -> AsyncIterator[ZooKeeperWays]:
    """A ZooKeeper of its own and the ways to it."""
    from tests.zookeeper import ZooKeeper

    (folder / "zookeeper").mkdir()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        target = Peer("127.0.0.1", server.port)
        ways = {member: await stack.enter_async_context(proxy(target)) for member in members}
        yield ZooKeeperWays(server.url("/arbiter"), "/arbiter", ways)
