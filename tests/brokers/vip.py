"""An address that follows the primary, as a cluster manager moves one.

Without a target its port is closed: the kernel refuses a dial, as on a host with the address but without a
broker. A forwarder that accepted and dropped would look like a living broker.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from haclient.testing.peers.listening import Peer, bound, loopback_host
from haclient.testing.proxy import Proxy
from tests.dnsmasq import free_port


class Vip(Peer):
    """One address for clients, without a target at first.

    :ivar target: the current target; ``None`` without one.
    """

    def __init__(self) -> None:
        host = loopback_host()
        super().__init__(host, free_port(host))
        self.target: Peer | None = None
        self._open = AsyncExitStack()
        self._changing = asyncio.Lock()

    async def lead(self, target: Peer) -> None:
        """Forward to this target from now on, and cut connections to any other."""
        async with self._changing:
            if self.target == target:
                return
            await self._open.aclose()
            listener = bound(self.port, self.host)
            route = Proxy(self.host, self.port, target=target)
            await self._open.enter_async_context(route.serving(listener))
            self.target = target

    async def leave(self) -> None:
        """Remove the target: cut every connection, and refuse new ones."""
        async with self._changing:
            self.target = None
            await self._open.aclose()
