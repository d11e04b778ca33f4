"""An address that follows the primary, as a cluster manager moves one.

While it leads nowhere its port is closed: a dial is refused by the kernel, as by a host that has the address
and no broker.  A forwarder that accepted and dropped would look like a broker that is alive.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from haclient.testing.peers.listening import Peer, bound, loopback_host
from haclient.testing.proxy import Proxy
from tests.dnsmasq import free_port


class Vip(Peer):
    """One address for clients; it leads nowhere at first.

    :ivar target: the peer that it leads to; ``None`` while it leads nowhere.
    """

    def __init__(self) -> None:
        host = loopback_host()
        super().__init__(host, free_port(host))
        self.target: Peer | None = None
        self._open = AsyncExitStack()
        self._changing = asyncio.Lock()

    async def lead(self, target: Peer) -> None:
        """Lead to a peer from now on; what led to another one is cut."""
        async with self._changing:
            if self.target == target:
                return
            await self._open.aclose()
            listener = bound(self.port, self.host)
            route = Proxy(self.host, self.port, target=target)
            await self._open.enter_async_context(route.serving(listener))
            self.target = target

    async def leave(self) -> None:
        """Lead nowhere: cut every connection, and refuse new ones."""
        async with self._changing:
            self.target = None
            await self._open.aclose()
